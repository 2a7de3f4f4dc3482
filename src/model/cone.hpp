// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <cstdint>
#include <limits>

// The exact cone: from the last KV source on, a layer hands later positions nothing but its own window KV, so a row
// matters there only within some windows of a wanted one.
namespace bathys::model {

// No row at or after this one, in this step or a later one, is wanted.
inline constexpr std::int64_t kNoReach = std::numeric_limits<std::int64_t>::max();

// Rows through a layer, for reports.
struct LayerCounters {
  std::int64_t source_rows = 0;  // compressed keys and values
  std::int64_t window_rows = 0;  // window KV written
  std::int64_t full_rows = 0;    // attention and experts
};

// The largest reach (distance to the nearest wanted row at or after a row) with which a row runs in full, or writes its
// window KV, at a layer; kNoReach: every row does.
[[nodiscard]] std::int64_t cone_full_limit(const config::ModelConfig& config, int layer);
[[nodiscard]] std::int64_t cone_window_limit(const config::ModelConfig& config, int layer);

// Rows that a sequence of n_rows of which the last n_wanted are wanted needs at a layer when nothing is shared.
[[nodiscard]] LayerCounters rows_needed(const config::ModelConfig& config, int layer, std::int64_t n_rows,
                                        std::int64_t n_wanted);

}  // namespace bathys::model
