// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.hpp"

#include "catalog/dataset_table.hpp"
#include "core/error.hpp"
#include "model/workspace.hpp"

#include <algorithm>

namespace bathys::model {
namespace {

constexpr double kGiB = 0x1p30;
// Of what is left: the rest is for page tables, libraries and what else runs there.
constexpr double kShareOfRest = 0.85;

double gib(std::int64_t bytes) { return static_cast<double>(bytes) / kGiB; }

}  // namespace

MemoryPlan plan_memory(const config::ModelConfig& config, const parallel::Layout& layout, int replica_rank,
                       const ModelOptions& options) {
  const int ranks = layout.groups * layout.tensor;
  catalog::require_tensor_ranks(config, layout.tensor);
  const catalog::RankBytes bytes = catalog::rank_bytes(
      catalog::dataset_table(config), {layout.tensor, replica_rank % layout.tensor, ranks, replica_rank});
  // The text model: neither draft stages nor the vision tower.
  return {bytes.global + bytes.layer + bytes.experts + bytes.engram,
          Workspace::bytes_for(config, local_sizes(config, layout, replica_rank), options.max_rows, options.head_rows)};
}

MemoryBudget budget_memory(const MemoryPlan& plan, std::int64_t baseline, const FreeMemory& free, double memory_gib,
                           std::int64_t row_budget) {
  const std::int64_t bytes = free.device ? free.device_bytes : free.host_bytes;
  const int ranks = free.device ? free.device_ranks : free.host_ranks;
  MemoryBudget budget;
  budget.baseline = baseline;
  budget.weights = plan.weights;
  budget.workspace = plan.workspace;
  budget.on_device = free.device;
  // A share of next to nothing is known to be small, which 0 would not say; so with the caches, where 0 is no bound.
  budget.share = bytes == 0 ? 0 : std::max<std::int64_t>(1, bytes / ranks);
  require(budget.share == 0 || plan.total() <= budget.share, ExitCode::usage,
          "weights of {:.2f} GiB and, for --row-budget {}, buffers of {:.2f} GiB: each of the {} ranks on {} {} "
          "can have {:.2f} GiB; start more ranks on more nodes, or lower --row-budget",
          gib(plan.weights), row_budget, gib(plan.workspace), ranks, free.device ? "a GPU of host" : "host", free.host,
          gib(budget.share));
  if (memory_gib > 0) {
    budget.caches = std::max<std::int64_t>(1, static_cast<std::int64_t>(memory_gib * kGiB));
  } else if (budget.share > 0) {
    const auto rest = static_cast<double>(budget.share - plan.total());
    budget.caches = std::max<std::int64_t>(1, static_cast<std::int64_t>(kShareOfRest * rest));
  }
  return budget;
}

}  // namespace bathys::model
