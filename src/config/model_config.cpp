// SPDX-License-Identifier: Apache-2.0
#include "config/model_config.hpp"

#include "config/model_config_fields.hpp"
#include "core/json.hpp"

#include <algorithm>

namespace bathys::config {
namespace {

// The last of the ascending `sources` at or below `layer`, or -1.
int nearest_source(const std::vector<int>& sources, int layer) {
  const auto above = std::upper_bound(sources.begin(), sources.end(), layer);
  return above == sources.begin() ? -1 : *(above - 1);
}

struct JsonWriter {
  Json json = Json::object();

  template <class T>
  void operator()(const char* key, const T& value) {
    json[key] = value;
  }
  void operator()(const char* key, const std::optional<double>& value) {
    json[key] = value ? Json(*value) : Json(nullptr);
  }
  void operator()(const char* key, ScoreFunction value) { json[key] = score_function_name(value); }
};

}  // namespace

std::string_view score_function_name(ScoreFunction function) {
  switch (function) {
    case ScoreFunction::softmax:
      return "softmax";
    case ScoreFunction::sigmoid:
      return "sigmoid";
    case ScoreFunction::sqrtsoftplus:
      break;
  }
  return "sqrtsoftplus";
}

int ModelConfig::routed_experts(int layer) const {
  return layer >= n_layers && dspark_n_routed_experts > 0 ? dspark_n_routed_experts : n_routed_experts;
}

int ModelConfig::activated_experts(int layer) const {
  return layer >= n_layers && dspark_n_activated_experts > 0 ? dspark_n_activated_experts : n_activated_experts;
}

bool ModelConfig::is_kv_source(int layer) const {
  return std::binary_search(kv_source_layers.begin(), kv_source_layers.end(), layer);
}

bool ModelConfig::is_index_source(int layer) const {
  return std::binary_search(index_source_layers.begin(), index_source_layers.end(), layer);
}

int ModelConfig::kv_source_of(int layer) const { return nearest_source(kv_source_layers, layer); }

int ModelConfig::index_source_of(int layer) const { return nearest_source(index_source_layers, layer); }

int ModelConfig::engram_index(int layer) const {
  const auto found = std::find(engram_layer_ids.begin(), engram_layer_ids.end(), layer);
  return found == engram_layer_ids.end() ? -1 : static_cast<int>(found - engram_layer_ids.begin());
}

std::string to_inference_json(const ModelConfig& config) {
  JsonWriter writer;
  writer.json["dtype"] = config.fp8 ? "fp8" : "bf16";
  writer.json["expert_dtype"] = config.expert_fp4 ? Json("fp4") : Json(nullptr);
  visit_fields(config, writer);
  return writer.json.dump(1) + "\n";
}

}  // namespace bathys::config
