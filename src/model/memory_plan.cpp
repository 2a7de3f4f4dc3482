// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.hpp"

#include "catalog/dataset_table.hpp"
#include "model/workspace.hpp"

namespace bathys::model {

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

}  // namespace bathys::model
