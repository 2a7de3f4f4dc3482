// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"
#include "kernels/hyper_connection.hpp"
#include "kernels/linear.hpp"
#include "parallel/rank_grid.hpp"

#include <cstdint>

namespace bathys::model {

using kernels::bf16;
using kernels::Mat;
using kernels::Vec;

// Shapes that depend on the rank as well as on the config.
struct LocalSizes {
  int heads = 0;           // query heads
  int groups = 0;          // output groups
  int experts = 0;         // routed experts
  std::int64_t vocab = 0;  // vocabulary rows
  int peers = 1;           // groups of the replica, whose rows meet in the experts
};
// Those of the rank that stands at `replica_rank` in its replica.
[[nodiscard]] LocalSizes local_sizes(const config::ModelConfig& config, const parallel::Layout& layout,
                                     int replica_rank);

// Every buffer of a step, allocated once for max_rows.  What a layer reads of it, it (or a layer before it in the same
// step) has written: poison() fills all of it with NaN to show where that is not so.
struct Workspace {
  Workspace(const config::ModelConfig& config, const LocalSizes& local, std::int64_t max_rows, std::int64_t head_rows);
  void poison(const Exec& exec) const;
  [[nodiscard]] std::int64_t bytes() const;
  // What bytes() would be, without allocating it.
  [[nodiscard]] static std::int64_t bytes_for(const config::ModelConfig& config, const LocalSizes& local,
                                              std::int64_t max_rows, std::int64_t head_rows);

  // The stream: copies and the mix that collapses them; two of each, to compact rows from one into the other.
  Mat<bf16> h[2];     // [T, M*D]
  Mat<float> pre[2];  // [T, M]
  kernels::HyperConnectionMix attn_mix, ffn_mix;
  Mat<bf16> x, x_part;            // [T, D] collapsed and normed; a subset of its rows
  Mat<bf16> y;                    // [T, D] output of attention or of the experts
  kernels::Activation q8, plain;  // x and what follows from it, prepared; A rows
  Mat<std::int64_t> sums;         // [A, D+1]
  Vec<std::int32_t> bad_layer;    // [T] first layer whose sums were not finite; max int: none

  // Attention
  Mat<bf16> kv;              // [T, d]
  Mat<std::uint8_t> window;  // [T, record]
  Mat<bf16> qr, q, o;        // [T, q_lora], [T, local H*d] twice
  Mat<bf16> grouped;         // [T, local G*o_lora]
  Mat<float> grain;          // [T, D]
  Kokkos::View<float***, Kokkos::LayoutRight, Exec::memory_space> rope_window, rope_compressed,
      rope_groups;  // [T, e/2, 2]
  // Compressor and indexer
  Mat<float> pool_kv, pool_gate;  // [T, d]
  Mat<bf16> latent, key;          // [T, d], [T, id]
  Mat<bf16> index_q, index_w;     // [T, IH*id], [T, IH]
  Vec<float> scores;              // rows x groups, bounded
  Mat<std::int32_t> chosen;       // [T, index_topk]
  Mat<std::int32_t> blocks;       // [T, candidate_topk_blocks]
  // Experts.  A: rows of all groups of the replica, T of each at most.
  Mat<bf16> all_x;               // [A, D], with several groups
  Mat<std::int32_t> all_ids;     // [A, k], likewise
  Mat<float> all_weights;        // [A, k], likewise
  Mat<float> logits;             // [T, E]
  Mat<std::int32_t> expert_ids;  // [T, k]
  Mat<float> expert_weights;     // [T, k]
  Vec<std::int32_t> offsets, row_of;
  Vec<float> weight_of;
  Mat<std::int32_t> assignment;               // [A, k]
  Mat<bf16> gate, up;                         // [A*k, I]
  Mat<bf16> down;                             // [A*k, D]
  kernels::Activation inner_q8, inner_plain;  // [A*k, I] prepared
  Mat<bf16> shared;                           // [T, D]
  // Engram
  Mat<std::int64_t> row_ids;  // [A, C], with several groups
  Mat<bf16> rows;             // [A, C*hd]
  Mat<bf16> engram_kv;        // [T, (M+1)*D]
  Mat<float> engram_gate;     // [T, M]
  // Head
  Mat<bf16> wanted;        // [T, D] normed rows whose logits are asked for
  Mat<bf16> head_rows;     // [head_rows, D]
  Mat<float> head_logits;  // [head_rows, local V]
};

}  // namespace bathys::model
