// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "apps/run_options.hpp"
#include "model/memory_plan.hpp"
#include "parallel/session.hpp"

namespace bathys::apps {

// Plans and announces the memory of all ranks: model::budget_memory for each, and the least caches of
// any for all.  Collective.
//   throws AgreedError(usage) where weights and buffers alone are more than a rank can have
[[nodiscard]] model::MemoryBudget announce_memory(parallel::Session& session, const OpenModel& open,
                                                  const RunOptions& options);

// Says how much of what was announced for the host was taken there since the start, on the rank that took the largest
// share: where the model is in a device's memory that is the process beside it, and what the device holds is not in it.
// Collective.
void report_memory(parallel::Session& session, const model::MemoryBudget& budget);

}  // namespace bathys::apps
