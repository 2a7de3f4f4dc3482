// SPDX-License-Identifier: Apache-2.0
#include "catalog/cache_sizes.hpp"

namespace bathys::catalog {
namespace {

constexpr std::int64_t kQ4x16Group = 16;
constexpr std::int64_t kQ4x32Group = 32;
constexpr std::int64_t kQ8Group = 32;
constexpr std::int64_t kFloatBytes = 4;
constexpr std::int64_t kHistoryTokenBytes = 8;

std::int64_t group_bytes(const config::ModelConfig& config) {
  return compressed_kv_bytes(config) + index_key_bytes(config);
}

}  // namespace

std::int64_t compressed_kv_bytes(const config::ModelConfig& config) {
  return config.head_dim / 2 + config.head_dim / kQ4x16Group;
}

std::int64_t index_key_bytes(const config::ModelConfig& config) {
  return config.index_head_dim / 2 + config.index_head_dim / kQ4x32Group;
}

std::int64_t window_kv_bytes(const config::ModelConfig& config) { return config.head_dim + config.head_dim / kQ8Group; }

std::int64_t compressed_cache_bytes(const config::ModelConfig& config, std::int64_t n_tokens) {
  std::int64_t groups = 0;
  for (const int source : config.kv_source_layers) groups += n_tokens / config.ratio(source);
  return groups * group_bytes(config);
}

double compressed_bytes_per_token(const config::ModelConfig& config) {
  double groups = 0;
  for (const int source : config.kv_source_layers) groups += 1.0 / config.ratio(source);
  return groups * static_cast<double>(group_bytes(config));
}

SequenceBytes sequence_bytes(const config::ModelConfig& config) {
  SequenceBytes bytes;
  const std::int64_t ring = config.window_size * window_kv_bytes(config);
  bytes.window = config.n_layers * ring;
  bytes.draft_window = config.n_mtp_layers * ring;
  for (const int source : config.kv_source_layers) {
    bytes.open_groups += std::int64_t{config.ratio(source) - 1} * 2 * config.head_dim * kFloatBytes;
  }
  if (config.engram_enabled()) bytes.engram_tokens = (config.engram_max_ngram_size - 1) * kHistoryTokenBytes;
  return bytes;
}

}  // namespace bathys::catalog
