// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <cstdint>
#include <vector>

namespace bathys::model {

// Where things lie in a sequence's state block, and which KV sources there are.
class CacheLayout {
 public:
  explicit CacheLayout(const config::ModelConfig& config);

  [[nodiscard]] std::int64_t state_bytes() const { return state_bytes_; }
  [[nodiscard]] std::int64_t ring_offset(int layer) const { return ring_[static_cast<std::size_t>(layer)]; }
  // Float32 kv and gate of the pending rows of a source with ratio > 1: [ratio-1][2][d].
  [[nodiscard]] std::int64_t open_offset(int source) const { return open_[static_cast<std::size_t>(source)]; }
  [[nodiscard]] std::int64_t page_bytes() const { return page_bytes_; }

  // KV sources are numbered in layer order.
  [[nodiscard]] int n_sources() const { return static_cast<int>(ratio_.size()); }
  [[nodiscard]] int source_of_layer(int layer) const {
    return source_of_[static_cast<std::size_t>(layer)];
  }  // -1: reads none
  [[nodiscard]] int ratio(int source) const { return ratio_[static_cast<std::size_t>(source)]; }

 private:
  std::vector<std::int64_t> ring_, open_;
  std::vector<int> source_of_, ratio_;
  std::int64_t state_bytes_ = 0, page_bytes_ = 0;
};

}  // namespace bathys::model
