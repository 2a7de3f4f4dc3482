// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"
#include "model/model.hpp"
#include "parallel/rank_grid.hpp"

#include <cstdint>

namespace bathys::model {

// What a rank's model takes, told before anything of it is allocated.  Bytes.
struct MemoryPlan {
  std::int64_t weights = 0;    // as stored; packing adds under 2 percent
  std::int64_t workspace = 0;  // buffers of a step of max_rows rows
  [[nodiscard]] std::int64_t total() const { return weights + workspace; }
};

// Of the rank that stands at `replica_rank` in its replica.
//   throws Error(usage) when the layout cannot cut the model
[[nodiscard]] MemoryPlan plan_memory(const config::ModelConfig& config, const parallel::Layout& layout,
                                     int replica_rank, const ModelOptions& options);

}  // namespace bathys::model
