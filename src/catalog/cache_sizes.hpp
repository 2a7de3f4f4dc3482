// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <cstdint>

namespace bathys::catalog {

// Bytes of the caches, which hold codes and scales.  Released sizes in parentheses.

// Compressed KV of one group: E2M1 codes and one E4M3 scale per 16 (288 B).
[[nodiscard]] std::int64_t compressed_kv_bytes(const config::ModelConfig& config);
// Index key of one group: E2M1 codes and one E8M0 scale per 32 (68 B).
[[nodiscard]] std::int64_t index_key_bytes(const config::ModelConfig& config);
// Window KV of one position in one layer: E4M3 codes and one E8M0 scale per 32 (528 B).
[[nodiscard]] std::int64_t window_kv_bytes(const config::ModelConfig& config);

// Compressed KV and index keys of all sources for a sequence of n_tokens; unfinished groups do not count.
[[nodiscard]] std::int64_t compressed_cache_bytes(const config::ModelConfig& config, std::int64_t n_tokens);
// The same per token of a long sequence (890 B).
[[nodiscard]] double compressed_bytes_per_token(const config::ModelConfig& config);

// What a sequence holds whatever its length.
struct SequenceBytes {
  std::int64_t window = 0;         // window rings of the backbone's layers, window_size slots each (2.7 MB)
  std::int64_t draft_window = 0;   // rings of the draft stages
  std::int64_t open_groups = 0;    // float32 kv and gate of up to ratio-1 pending rows in each source with ratio > 1
  std::int64_t engram_tokens = 0;  // the last engram_max_ngram_size - 1 token ids, 8 bytes each (id and image mark)
  [[nodiscard]] std::int64_t total() const { return window + draft_window + open_groups + engram_tokens; }
};
[[nodiscard]] SequenceBytes sequence_bytes(const config::ModelConfig& config);

}  // namespace bathys::catalog
