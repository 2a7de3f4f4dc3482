// SPDX-License-Identifier: Apache-2.0
#include "model/memory_plan.hpp"

#include "catalog/dataset_table.hpp"
#include "catalog/shard_range.hpp"
#include "model/workspace.hpp"

namespace bathys::model {

MemoryPlan plan_memory(const config::ModelConfig& config, const parallel::Layout& layout, int replica_rank,
                       const ModelOptions& options) {
  const int ranks = layout.groups * layout.tensor;
  const int tensor_rank = replica_rank % layout.tensor;
  catalog::require_tensor_ranks(config, layout.tensor);
  const catalog::RankBytes bytes =
      catalog::rank_bytes(catalog::dataset_table(config), {layout.tensor, tensor_rank, ranks, replica_rank});
  const auto share = [&](std::int64_t total, int of, int rank) { return catalog::shard_range(total, of, rank).size(); };
  const LocalSizes local{static_cast<int>(share(config.n_heads, layout.tensor, tensor_rank)),
                         static_cast<int>(share(config.o_groups, layout.tensor, tensor_rank)),
                         static_cast<int>(share(config.n_routed_experts, ranks, replica_rank)),
                         share(config.vocab_size, layout.tensor, tensor_rank), layout.groups};
  // The text model: neither draft stages nor the vision tower.
  return {bytes.global + bytes.layer + bytes.experts + bytes.engram,
          Workspace::bytes_for(config, local, options.max_rows, options.head_rows)};
}

}  // namespace bathys::model
