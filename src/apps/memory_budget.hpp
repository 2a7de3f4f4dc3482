// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/run_options.hpp"
#include "model/model.hpp"
#include "parallel/session.hpp"

#include <cstdint>

namespace bathys::apps {

// What a rank will take at most, announced before any weight is read.  Bytes.
struct MemoryBudget {
  std::int64_t baseline = 0;  // of the process as it is: program, libraries, requests
  std::int64_t weights = 0;
  std::int64_t workspace = 0;  // buffers of a step
  std::int64_t caches = 0;     // of all sequences of a rank together; the same on all ranks; 0: the kernel does not say
                               // what is left, and no bound was asked for
  [[nodiscard]] std::int64_t announced() const { return baseline + weights + workspace + caches; }
};

// Plans and announces the memory of all ranks: the caches get --memory, or else what the node has left for each of its
// ranks.  Collective.
//   throws AgreedError(usage) where weights and buffers alone are more than a rank can have
[[nodiscard]] MemoryBudget announce_memory(parallel::Session& session, const OpenModel& open, const RunOptions& options,
                                           const model::ModelOptions& model_options);

// Says how much of it was taken, on the rank that took the largest share.  Collective.
void report_memory(parallel::Session& session, const MemoryBudget& budget);

}  // namespace bathys::apps
