// SPDX-License-Identifier: Apache-2.0
#include "apps/memory_budget.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process_memory.hpp"
#include "model/memory_plan.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"

#include <algorithm>
#include <array>
#include <limits>

namespace bathys::apps {
namespace {

constexpr double kGiB = 0x1p30;
// Of what is left on a node: the rest is for page tables, libraries and what else runs there.
constexpr double kShareOfRest = 0.85;

}  // namespace

MemoryBudget announce_memory(parallel::Session& session, const OpenModel& open, const RunOptions& options,
                             const model::ModelOptions& model_options) {
  parallel::Collectives& world = session.world();
  const int replica_rank = session.rank() % (open.layout.groups * open.layout.tensor);
  const auto [budget, available] = parallel::agree(world, [&] {
    const model::MemoryPlan plan = model::plan_memory(open.shards.config, open.layout, replica_rank, model_options);
    MemoryBudget mine;
    mine.baseline = process_memory().resident_bytes;
    mine.weights = plan.weights;
    mine.workspace = plan.workspace;
    const std::int64_t for_me = available_memory() / session.local_size();
    require(for_me == 0 || plan.total() <= for_me, ExitCode::usage,
            "weights of {:.2f} GiB and, for --row-budget {}, buffers of {:.2f} GiB: each of the {} ranks on host {} "
            "can have {:.2f} GiB; start more ranks on more nodes, or lower --row-budget",
            static_cast<double>(plan.weights) / kGiB, model_options.max_rows,
            static_cast<double>(plan.workspace) / kGiB, session.local_size(), session.host(),
            static_cast<double>(for_me) / kGiB);
    mine.caches = options.memory_gib > 0
                      ? std::max<std::int64_t>(1, static_cast<std::int64_t>(options.memory_gib * kGiB))
                  : for_me == 0 ? 0
                                : static_cast<std::int64_t>(kShareOfRest * static_cast<double>(for_me - plan.total()));
    return std::pair(mine, for_me);
  });
  MemoryBudget all = budget;
  // Ranks admit the same sequences.  One that cannot tell what it has left goes by those that can.
  constexpr std::int64_t kUnknown = std::numeric_limits<std::int64_t>::max();
  const std::int64_t least = world.all_reduce_host(budget.caches > 0 ? budget.caches : kUnknown, parallel::Reduce::min);
  all.caches = least == kUnknown ? 0 : least;
  std::array<std::int64_t, 5> most{all.baseline, all.weights, all.workspace, all.announced(), -available};
  world.all_reduce_host(most, parallel::Reduce::max);
  if (available > 0 && all.caches > available - all.weights - all.workspace) {
    log::warn("memory", "text=\"--memory {:g} GiB is more than this node has left for a rank, {:.2f} GiB\"",
              options.memory_gib, static_cast<double>(available - all.weights - all.workspace) / kGiB);
  }
  log::info("memory",
            "baseline_bytes={} weight_bytes={} workspace_bytes={} cache_bytes={} announced_bytes={} "
            "available_bytes={}",
            most[0], most[1], most[2], all.caches, most[3], -most[4]);
  return all;
}

void report_memory(parallel::Session& session, const MemoryBudget& budget) {
  struct Peak {
    std::int64_t bytes, announced;
  };
  const auto peaks = session.world().all_gather_host(Peak{process_memory().peak_bytes, budget.announced()});
  const auto share = [](const Peak& peak) {
    return static_cast<double>(peak.bytes) / static_cast<double>(std::max<std::int64_t>(peak.announced, 1));
  };
  const auto most =
      std::max_element(peaks.begin(), peaks.end(), [&](const Peak& a, const Peak& b) { return share(a) < share(b); });
  log::info("memory_peak", "rank={} peak_bytes={} announced_bytes={} share={:.3f}", most - peaks.begin(), most->bytes,
            most->announced, share(*most));
}

}  // namespace bathys::apps
