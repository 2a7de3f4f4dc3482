// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"
#include "model/model.hpp"
#include "parallel/rank_grid.hpp"

#include <cstdint>
#include <string>

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

// What a rank finds where it runs.  Bytes free now; 0: not told, at least 1 otherwise.
struct FreeMemory {
  std::string host;
  std::int64_t host_bytes = 0;
  int host_ranks = 1;   // that share them
  bool device = false;  // weights, workspace and caches lie in a GPU's memory
  std::int64_t device_bytes = 0;
  int device_ranks = 1;
};

// What a rank will take at most.  Bytes.
struct MemoryBudget {
  std::int64_t baseline = 0;  // of the process as it is, on the host: program, libraries, requests
  std::int64_t weights = 0;
  std::int64_t workspace = 0;  // buffers of a step
  std::int64_t caches = 0;     // of all sequences of a rank together; 0: what is left is not known, and no bound was
                               // asked for
  bool on_device = false;      // weights, workspace and caches
  std::int64_t share = 0;      // of what is free where the model lies, before it is there; 0: not known
  [[nodiscard]] std::int64_t model() const { return weights + workspace + caches; }
  [[nodiscard]] std::int64_t announced() const { return baseline + model(); }
  [[nodiscard]] std::int64_t announced_host() const { return on_device ? baseline : announced(); }
  // Whether the caches may come to need more than the rank's share leaves: only where more was asked for.
  [[nodiscard]] bool beyond_share() const { return share > 0 && caches > share - weights - workspace; }
};

// The caches get `memory_gib`, or where that is 0 most of what weights and workspace leave of the rank's share.
//   baseline  resident bytes of the process now; what is free is counted beside them
//   throws Error(usage) where weights and workspace alone are more than the share
[[nodiscard]] MemoryBudget budget_memory(const MemoryPlan& plan, std::int64_t baseline, const FreeMemory& free,
                                         double memory_gib, std::int64_t row_budget);

}  // namespace bathys::model
