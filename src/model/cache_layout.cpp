// SPDX-License-Identifier: Apache-2.0
#include "model/cache_layout.hpp"

#include "kernels/cache.hpp"

#include <algorithm>

namespace bathys::model {
namespace {

constexpr std::int64_t kAlignment = 64;
std::int64_t aligned(std::int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

}  // namespace

CacheLayout::CacheLayout(const config::ModelConfig& config) {
  for (int layer = 0; layer < config.n_layers; ++layer) {
    ring_.push_back(state_bytes_);
    state_bytes_ += aligned(config.window_size * kernels::window_record_bytes(config.head_dim));
  }
  for (const int layer : config.kv_source_layers) {
    ratio_.push_back(config.ratio(layer));
    open_.push_back(state_bytes_);
    state_bytes_ +=
        aligned(std::int64_t{config.ratio(layer) - 1} * 2 * config.head_dim * static_cast<std::int64_t>(sizeof(float)));
  }
  for (int layer = 0; layer < config.n_layers; ++layer) {
    const auto& sources = config.kv_source_layers;
    const bool reads = config.ratio(layer) > 0;
    source_of_.push_back(
        reads
            ? static_cast<int>(std::find(sources.begin(), sources.end(), config.kv_source_of(layer)) - sources.begin())
            : -1);
  }
  page_bytes_ = aligned(kernels::page_bytes(config.head_dim, config.index_head_dim));
}

}  // namespace bathys::model
