// SPDX-License-Identifier: Apache-2.0
#include "model/cone.hpp"

#include <algorithm>

namespace bathys::model {
namespace {

// A row is seen through the windows of the `layers` layers above it: each looks back W-1 positions.
std::int64_t limit(const config::ModelConfig& config, int layer, std::int64_t layers) {
  if (config.cone_layer() < 0 || layer < config.cone_layer()) return kNoReach;
  return layers * (config.window_size - 1);
}

std::int64_t rows_within(std::int64_t n_rows, std::int64_t n_wanted, std::int64_t limit) {
  return n_wanted == 0 && limit != kNoReach ? 0 : limit >= n_rows ? n_rows : std::min(n_rows, n_wanted + limit);
}

}  // namespace

std::int64_t cone_full_limit(const config::ModelConfig& config, int layer) {
  return limit(config, layer, std::int64_t{config.n_layers} - 1 - layer);
}

std::int64_t cone_window_limit(const config::ModelConfig& config, int layer) {
  return limit(config, layer, std::int64_t{config.n_layers} - layer);
}

LayerCounters rows_needed(const config::ModelConfig& config, int layer, std::int64_t n_rows, std::int64_t n_wanted) {
  const auto& sources = config.kv_source_layers;
  return {std::find(sources.begin(), sources.end(), layer) == sources.end() ? 0 : n_rows,
          rows_within(n_rows, n_wanted, cone_window_limit(config, layer)),
          rows_within(n_rows, n_wanted, cone_full_limit(config, layer))};
}

}  // namespace bathys::model
