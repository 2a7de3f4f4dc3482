// SPDX-License-Identifier: Apache-2.0
#include "config/model_config.hpp"
#include "config/model_config_fields.hpp"
#include "core/error.hpp"
#include "core/json.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>
#include <string>
#include <utility>

namespace bathys::config {
namespace {

constexpr ExitCode kCode = ExitCode::usage;

// Reads one field from the key `key` of `object`; the key must exist.
struct FieldReader {
  JsonObject& object;

  void operator()(std::string_view key, std::int64_t& out) const { out = object.integer(key); }
  void operator()(std::string_view key, double& out) const { out = object.number(key); }
  void operator()(std::string_view key, bool& out) const { out = object.boolean(key); }
  void operator()(std::string_view key, int& out) const { out = narrow(key, object.integer(key)); }
  void operator()(std::string_view key, std::vector<std::int64_t>& out) const { out = object.integers(key); }
  void operator()(std::string_view key, std::vector<int>& out) const {
    out.clear();
    for (const std::int64_t value : object.integers(key)) out.push_back(narrow(key, value));
  }
  void operator()(std::string_view key, std::optional<double>& out) const {
    out.reset();
    if (object.is_null(key)) {
      object.ignore(key);
    } else {
      out = object.number(key);
    }
  }
  void operator()(std::string_view key, ScoreFunction& out) const {
    const std::string name = object.string(key);
    for (const auto function : {ScoreFunction::softmax, ScoreFunction::sigmoid, ScoreFunction::sqrtsoftplus}) {
      if (name == score_function_name(function)) {
        out = function;
        return;
      }
    }
    object.refuse(key, "\"softmax\", \"sigmoid\" or \"sqrtsoftplus\"");
  }

  [[nodiscard]] int narrow(std::string_view key, std::int64_t value) const {
    constexpr std::int64_t kMax = std::numeric_limits<int>::max();
    if (value > kMax || value < -kMax) object.refuse(key, "an integer below 2^31");
    return static_cast<int>(value);
  }
};

// true for `name`, false for null.
bool is_named_or_null(JsonObject& object, std::string_view key, std::string_view name) {
  if (object.is_null(key)) {
    object.ignore(key);
    return false;
  }
  if (object.string(key) != name) object.refuse(key, fmt::format("\"{}\" or null", name));
  return true;
}

ModelConfig read_inference_form(JsonObject& root) {
  ModelConfig config;
  const std::string dtype = root.string_or("dtype", "fp8");
  if (dtype != "fp8" && dtype != "bf16") root.refuse("dtype", "\"fp8\" or \"bf16\"");
  config.fp8 = dtype == "fp8";
  root.ignore("expert_dtype");
  if (root.has("expert_dtype")) config.expert_fp4 = is_named_or_null(root, "expert_dtype", "fp4");
  visit_fields(config, [&](std::string_view key, auto& field) {
    root.ignore(key);
    if (root.has(key)) FieldReader{root}(key, field);
  });
  // Limits of a run of the reference program, not of the model; ours come from its command line.
  for (const char* key : {"max_batch_size", "max_seq_len", "temperature"}) root.ignore(key);
  return config;
}

// Where the Hugging Face form keeps a field.
enum class Section { root, text, vision };
// A draft key is only required where there are draft stages, a nullable one never.
enum class Need { required, with_draft, optional };
struct HfKey {
  std::string_view inference_key;
  Section section;
  std::string_view hf_key;
  Need need = Need::required;
};

constexpr std::array kHfKeys = std::to_array<HfKey>({
    {"bos_token_id", Section::root, "bos_token_id"},
    {"eos_token_id", Section::root, "eos_token_id"},
    {"pad_token_id", Section::root, "pad_token_id"},
    {"image_token_id", Section::root, "image_token_id"},
    {"vocab_size", Section::text, "vocab_size"},
    {"dim", Section::text, "hidden_size"},
    {"moe_inter_dim", Section::text, "moe_intermediate_size"},
    {"n_layers", Section::text, "num_hidden_layers"},
    {"n_mtp_layers", Section::text, "num_nextn_predict_layers"},
    {"n_heads", Section::text, "num_attention_heads"},
    {"head_dim", Section::text, "head_dim"},
    {"q_lora_rank", Section::text, "q_lora_rank"},
    {"o_lora_rank", Section::text, "o_lora_rank"},
    {"o_groups", Section::text, "o_groups"},
    {"rope_head_dim", Section::text, "qk_rope_head_dim"},
    {"norm_eps", Section::text, "rms_norm_eps"},
    {"swiglu_limit", Section::text, "swiglu_limit"},
    {"max_position_embeddings", Section::text, "max_position_embeddings"},
    {"rope_theta", Section::text, "rope_theta"},
    {"compress_rope_theta", Section::text, "compress_rope_theta"},
    {"n_routed_experts", Section::text, "n_routed_experts"},
    {"n_shared_experts", Section::text, "n_shared_experts"},
    {"n_activated_experts", Section::text, "num_experts_per_tok"},
    {"score_func", Section::text, "scoring_func"},
    {"norm_topk_prob", Section::text, "norm_topk_prob"},
    {"route_scale", Section::text, "routed_scaling_factor"},
    {"window_size", Section::text, "sliding_window"},
    {"compress_ratios", Section::text, "compress_ratios"},
    {"kv_source_layers", Section::text, "kv_source_layer_ids"},
    {"index_source_layers", Section::text, "index_source_layer_ids"},
    {"index_n_heads", Section::text, "index_n_heads"},
    {"index_head_dim", Section::text, "index_head_dim"},
    {"index_topk", Section::text, "index_topk"},
    {"candidate_source_layer", Section::text, "candidate_source_layer_id"},
    {"candidate_topk_blocks", Section::text, "candidate_topk_blocks"},
    {"candidate_block_size", Section::text, "candidate_block_size"},
    {"hc_mult", Section::text, "hc_mult"},
    {"hc_sinkhorn_iters", Section::text, "hc_sinkhorn_iters"},
    {"hc_eps", Section::text, "hc_eps"},
    {"engram_layer_ids", Section::text, "engram_layer_ids"},
    {"engram_num_embeddings", Section::text, "engram_num_embeddings"},
    {"engram_max_ngram_size", Section::text, "engram_max_ngram_size"},
    {"engram_vocab_size", Section::text, "engram_vocab_size"},
    {"engram_n_heads", Section::text, "engram_n_heads"},
    {"engram_head_dim", Section::text, "engram_head_dim"},
    {"engram_pad_id", Section::text, "engram_pad_token_id"},
    {"engram_compressed_vocab_size", Section::text, "engram_compressed_vocab_size"},
    {"dspark_block_size", Section::text, "dspark_block_size", Need::with_draft},
    {"dspark_noise_token_id", Section::text, "dspark_noise_token_id", Need::with_draft},
    {"dspark_target_layer_ids", Section::text, "dspark_target_layer_ids", Need::with_draft},
    {"dspark_markov_rank", Section::text, "dspark_markov_rank", Need::with_draft},
    {"dspark_n_routed_experts", Section::text, "dspark_n_routed_experts", Need::with_draft},
    {"dspark_n_activated_experts", Section::text, "dspark_num_experts_per_tok", Need::with_draft},
    {"vision_n_layers", Section::vision, "num_hidden_layers"},
    {"vision_dim", Section::vision, "hidden_size"},
    {"vision_n_heads", Section::vision, "num_attention_heads"},
    {"vision_inter_dim", Section::vision, "intermediate_size"},
    {"vision_patch_size", Section::vision, "patch_size"},
    {"vision_rope_theta", Section::vision, "rope_theta"},
    {"vision_downsample_ratio", Section::vision, "downsample_ratio"},
    {"vision_max_n_token", Section::vision, "max_image_tokens"},
    {"vision_min_pixels", Section::vision, "min_pixels"},
    {"vision_max_wh_ratio", Section::vision, "max_wh_ratio", Need::optional},
});

// Reads every field of `section` from `object`.
void read_section(JsonObject& object, Section section, ModelConfig& config) {
  visit_fields(config, [&](std::string_view key, auto& field) {
    const auto entry =
        std::find_if(kHfKeys.begin(), kHfKeys.end(), [&](const HfKey& k) { return k.inference_key == key; });
    if (entry == kHfKeys.end() || entry->section != section) return;
    object.ignore(entry->hf_key);
    // n_mtp_layers is visited before any key of the draft head.
    const bool required = entry->need == Need::required || (entry->need == Need::with_draft && config.n_mtp_layers > 0);
    if (required || object.has(entry->hf_key)) FieldReader{object}(entry->hf_key, field);
  });
}

// Keys that a transformers configuration carries and that have only one meaning here: checked where present.
void check_string(JsonObject& object, std::string_view key, std::string_view expected) {
  if (object.string_or(key, std::string(expected)) != expected) object.refuse(key, fmt::format("\"{}\"", expected));
}
void check_boolean(JsonObject& object, std::string_view key, bool expected) {
  if (object.boolean_or(key, expected) != expected) object.refuse(key, expected ? "true" : "false");
}

void read_formats(JsonObject& root, ModelConfig& config) {
  config.fp8 = false;
  config.expert_fp4 = false;
  root.ignore("quantization_config");
  if (!root.has("quantization_config") || root.is_null("quantization_config")) return;
  JsonObject object = root.object("quantization_config");
  config.fp8 = is_named_or_null(object, "quant_method", "fp8");
  object.ignore("expert_dtype");
  if (config.fp8 || object.has("expert_dtype")) config.expert_fp4 = is_named_or_null(object, "expert_dtype", "fp4");
  check_string(object, "activation_scheme", "dynamic");
  check_string(object, "scale_fmt", "ue8m0");
  if (object.integers_or("weight_block_size", {32, 32}) != std::vector<std::int64_t>{32, 32}) {
    object.refuse("weight_block_size", "[32, 32]");
  }
  object.finish();
}

void read_rope_scaling(JsonObject& text, ModelConfig& config) {
  if (text.is_null("rope_scaling")) {
    text.ignore("rope_scaling");
    config.original_seq_len = 0;
    return;
  }
  JsonObject object = text.object("rope_scaling");
  if (object.string("rope_type") != "yarn") object.refuse("rope_type", "\"yarn\"");
  const FieldReader read{object};
  read("factor", config.rope_factor);
  read("beta_fast", config.beta_fast);
  read("beta_slow", config.beta_slow);
  read("original_max_position_embeddings", config.original_seq_len);
  object.finish();
}

void read_text(JsonObject& root, ModelConfig& config) {
  JsonObject text = root.object("text_config");
  read_section(text, Section::text, config);
  read_rope_scaling(text, config);
  check_string(text, "model_type", "deepseek_v41_text");
  check_string(text, "dtype", "bfloat16");
  check_string(text, "hidden_act", "silu");
  check_string(text, "topk_method", "noaux_tc");
  check_boolean(text, "attention_bias", false);
  check_boolean(text, "tie_word_embeddings", false);
  if (text.integer_or("num_key_value_heads", 1) != 1) text.refuse("num_key_value_heads", "1");
  // Training or another program's run time: no number here depends on them.
  for (const char* key : {"attention_dropout", "initializer_range", "use_cache"}) text.ignore(key);
  text.finish();
}

void read_vision(JsonObject& root, ModelConfig& config) {
  root.ignore("vision_config");
  if (!root.has("vision_config") || root.is_null("vision_config")) return;
  JsonObject vision = root.object("vision_config");
  read_section(vision, Section::vision, config);
  check_string(vision, "model_type", "deepseek_v41_vision");
  check_string(vision, "dtype", "bfloat16");
  vision.finish();
}

ModelConfig read_hf_form(JsonObject& root) {
  ModelConfig config;
  if (root.string("model_type") != "deepseek_v41") root.refuse("model_type", "\"deepseek_v41\"");
  root.ignore("architectures");
  if (root.has("architectures") &&
      root.strings("architectures") != std::vector<std::string>{"DeepseekV41ForCausalLM"}) {
    root.refuse("architectures", "[\"DeepseekV41ForCausalLM\"]");
  }
  check_string(root, "dtype", "bfloat16");
  check_boolean(root, "tie_word_embeddings", false);
  root.ignore("transformers_version");  // who wrote the file
  read_formats(root, config);
  read_section(root, Section::root, config);
  read_text(root, config);
  read_vision(root, config);
  return config;
}

// A feature that is off has no values, so that two spellings of one model compare equal.
void reset_unused(ModelConfig& config) {
  const ModelConfig defaults;
  if (config.original_seq_len == 0) {
    config.rope_factor = defaults.rope_factor;
    config.beta_fast = defaults.beta_fast;
    config.beta_slow = defaults.beta_slow;
  }
  if (config.candidate_source_layer < 0) {
    config.candidate_source_layer = defaults.candidate_source_layer;
    config.candidate_topk_blocks = defaults.candidate_topk_blocks;
    config.candidate_block_size = defaults.candidate_block_size;
  }
  if (!config.engram_enabled()) {
    config.engram_max_ngram_size = defaults.engram_max_ngram_size;
    config.engram_vocab_size = defaults.engram_vocab_size;
    config.engram_n_heads = defaults.engram_n_heads;
    config.engram_head_dim = defaults.engram_head_dim;
    config.engram_pad_id = defaults.engram_pad_id;
    config.engram_compressed_vocab_size = defaults.engram_compressed_vocab_size;
  }
  if (!config.vision_enabled()) {
    config.vision_dim = defaults.vision_dim;
    config.vision_n_heads = defaults.vision_n_heads;
    config.vision_inter_dim = defaults.vision_inter_dim;
    config.vision_patch_size = defaults.vision_patch_size;
    config.vision_rope_theta = defaults.vision_rope_theta;
    config.vision_downsample_ratio = defaults.vision_downsample_ratio;
    config.vision_max_n_token = defaults.vision_max_n_token;
    config.vision_min_pixels = defaults.vision_min_pixels;
    config.vision_max_wh_ratio = defaults.vision_max_wh_ratio;
  }
  if (config.n_mtp_layers == 0) {
    config.dspark_block_size = defaults.dspark_block_size;
    config.dspark_noise_token_id = defaults.dspark_noise_token_id;
    config.dspark_target_layer_ids = defaults.dspark_target_layer_ids;
    config.dspark_markov_rank = defaults.dspark_markov_rank;
    config.dspark_n_routed_experts = defaults.dspark_n_routed_experts;
    config.dspark_n_activated_experts = defaults.dspark_n_activated_experts;
  }
}

}  // namespace

ModelConfig read_model_config(std::string_view json_text, std::string_view name) {
  const Json json = parse_json(json_text, name, ExitCode::bad_input);
  JsonObject root(json, std::string(name), kCode);
  ModelConfig config = root.has("text_config") ? read_hf_form(root) : read_inference_form(root);
  root.finish();
  validate(config, name);
  reset_unused(config);
  return config;
}

}  // namespace bathys::config
