// SPDX-License-Identifier: Apache-2.0
#include "apps/memory_budget.hpp"

#include "core/log.hpp"
#include "core/process_memory.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"
#include "parallel/device_binding.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace bathys::apps {
namespace {

const char* place_of(const model::MemoryBudget& budget) { return budget.on_device ? "device" : "host"; }

}  // namespace

model::MemoryBudget announce_memory(parallel::Session& session, const OpenModel& open, const RunOptions& options) {
  parallel::Collectives& world = session.world();
  const int replica_rank = session.rank() % (open.layout.groups * open.layout.tensor);
  model::MemoryBudget budget = parallel::agree(world, [&] {
    const model::MemoryPlan plan =
        model::plan_memory(open.shards.config, open.layout, replica_rank, model_options(options));
    model::FreeMemory free;
    free.host = session.host();
    free.host_bytes = available_memory();
    free.host_ranks = session.local_size();
    free.device = session.device() >= 0;
    if (free.device) free.device_bytes = parallel::free_device_memory();  // a session lets no two ranks share a GPU
    return model::budget_memory(plan, process_memory().resident_bytes, free, options.memory_gib, options.row_budget);
  });
  // Ranks admit the same sequences.  One that cannot tell what it has left goes by those that can.
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = world.all_reduce_host(budget.caches > 0 ? budget.caches : kUnknown, parallel::Reduce::min);
  std::array<std::int64_t, 5> most{budget.baseline, budget.weights, budget.workspace, budget.announced(),
                                   -budget.share};
  world.all_reduce_host(most, parallel::Reduce::max);
  budget.caches = least == kUnknown ? 0 : least;
  if (budget.beyond_share()) {
    log::warn("memory", "text=\"--memory {:g} GiB is more than {} has left for a rank, {:.2f} GiB\"",
              options.memory_gib, budget.on_device ? "the GPU" : "this node",
              static_cast<double>(budget.share - budget.weights - budget.workspace) / 0x1p30);
  }
  log::info("memory",
            "baseline_bytes={} weight_bytes={} workspace_bytes={} cache_bytes={} announced_bytes={} "
            "available_bytes={} model_in={}",
            most[0], most[1], most[2], budget.caches, most[3], -most[4], place_of(budget));
  return budget;
}

void report_memory(parallel::Session& session, const model::MemoryBudget& budget) {
  struct Peak {
    std::int64_t bytes, announced;
  };
  const auto peaks = session.world().all_gather_host(Peak{process_memory().peak_bytes, budget.announced_host()});
  const auto share = [](const Peak& peak) {
    return static_cast<double>(peak.bytes) / static_cast<double>(std::max<std::int64_t>(peak.announced, 1));
  };
  const auto most =
      std::max_element(peaks.begin(), peaks.end(), [&](const Peak& a, const Peak& b) { return share(a) < share(b); });
  log::info("memory_peak", "rank={} host_peak_bytes={} host_announced_bytes={} share={:.3f} model_in={}",
            most - peaks.begin(), most->bytes, most->announced, share(*most), place_of(budget));
}

}  // namespace bathys::apps
