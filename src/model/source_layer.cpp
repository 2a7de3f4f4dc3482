// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/compressor.hpp"
#include "kernels/embedding.hpp"
#include "kernels/indexer.hpp"
#include "kernels/norm_rope.hpp"
#include "model/layers.hpp"
#include "numerics/maths.hpp"

#include <algorithm>

namespace bathys::model {

using kernels::first_rows;

void compressor_layer(const StepContext& c, int layer, const CompressorWeights& w, const Mat<const bf16>& x) {
  const auto& config = c.config;
  const auto eps = static_cast<float>(config.norm_eps);
  const int source = c.layout.source_of_layer(layer);
  const int ratio = c.layout.ratio(source);
  const std::int64_t n_groups = c.plan.n_groups(source);
  const auto n = static_cast<std::int64_t>(x.extent(0));

  kernels::prepare_plain(c.exec, x, config.dim, c.work.plain);
  const Mat<bf16> latent = first_rows(c.work.latent, n_groups);
  if (ratio == 1) {
    kernels::linear(c.exec, w.wkv, 0, c.work.plain, latent);
  } else {
    require(w.wgate.has_value(), ExitCode::internal, "layer {}: a source of ratio {} has no gate", layer, ratio);
    const Mat<float> kv = first_rows(c.work.pool_kv, n), gate = first_rows(c.work.pool_gate, n);
    kernels::linear(c.exec, w.wkv, 0, c.work.plain, kv);
    kernels::linear(c.exec, *w.wgate, 0, c.work.plain, gate);
    kernels::compress_pool(c.exec, kv, gate, ratio, c.plan.sequences(), c.plan.groups(source),
                           c.layout.open_offset(source), latent);
    kernels::compress_keep_open(c.exec, kv, gate, ratio, c.plan.sequences(), c.layout.open_offset(source));
  }
  if (n_groups == 0) return;
  kernels::rms_norm(c.exec, latent, w.norm, eps, latent);
  const Mat<bf16> key = first_rows(c.work.key, n_groups);
  kernels::prepare_plain(c.exec, latent, config.head_dim,
                         c.work.plain);  // the index key is taken before the latent's RoPE
  kernels::linear(c.exec, w.index_key, 0, c.work.plain, key);
  kernels::rms_norm(c.exec, key, w.key_norm, eps, key);
  const kernels::Cube<float> table = first_rows(c.work.rope_groups, n_groups);
  kernels::rope_table(c.exec, c.plan.group_positions(source), c.compressed_freqs, table);
  kernels::rope_rotate(c.exec, key, 1, config.index_head_dim, Vec<const std::int32_t>(), table, false);
  kernels::rope_rotate(c.exec, latent, 1, config.head_dim, Vec<const std::int32_t>(), table, false);
  kernels::store_groups(c.exec, latent, key, c.plan.groups(source), c.plan.pages(source));
}

void indexer_layer(const StepContext& c, int layer, const IndexerWeights& w, const Mat<const bf16>& x,
                   const Mat<const bf16>& qr) {
  const auto& config = c.config;
  const LayerRows& rows = c.plan.layer(layer);
  const int source = c.layout.source_of_layer(layer);
  const Mat<bf16> q = first_rows(c.work.index_q, rows.full), weight = first_rows(c.work.index_w, rows.full);
  kernels::linear(c.exec, w.wq_b, 0, prepared(c, w.wq_b.kind, qr), q);
  kernels::rope_rotate(c.exec, q, config.index_n_heads, config.index_head_dim, rows.full_rows, c.work.rope_compressed,
                       false);
  kernels::quantize_q4x32_in_place(c.exec, q);
  kernels::linear(c.exec, w.weights_proj, 0, prepared(c, w.weights_proj.kind, x), weight);
  if (c.observer != nullptr) c.observer->tensor("index_q", layer, Mat<const bf16>(q));

  kernels::IndexQueries in;
  in.q = q;
  in.weight = weight;
  in.rows = rows.full_rows;
  in.step_rows = c.plan.step_rows();
  in.pages = c.plan.pages(source);
  in.heads = config.index_n_heads;
  in.index_head_dim = config.index_head_dim;
  in.head_dim = config.head_dim;
  in.ratio = c.layout.ratio(source);

  const Mat<std::int32_t> chosen = first_rows(c.work.chosen, c.plan.rows());
  const Mat<std::int32_t> blocks = first_rows(c.work.blocks, c.plan.rows());
  const int candidates = config.candidate_source_layer;
  const bool restricted = candidates >= 0 && layer > candidates;
  const std::int64_t reachable = std::max<std::int64_t>(c.plan.max_reachable(source), 1);
  const std::int64_t columns =
      restricted ? std::int64_t{config.candidate_topk_blocks} * config.candidate_block_size : reachable;
  if (static_cast<std::int64_t>(c.work.scores.extent(0)) < columns) {  // a longer context than any before
    c.work.scores = Vec<float>(Kokkos::view_alloc(std::string("scores"), Kokkos::WithoutInitializing),
                               static_cast<std::size_t>(columns + columns / 4));
  }
  const std::int64_t at_once = static_cast<std::int64_t>(c.work.scores.extent(0)) / columns;
  for (std::int64_t row0 = 0; row0 < rows.full; row0 += at_once) {
    const std::int64_t n = std::min(at_once, rows.full - row0);
    const Mat<float> scores(
        UnmanagedView<float**>(c.work.scores.data(), static_cast<std::size_t>(n), static_cast<std::size_t>(columns)));
    if (restricted) {
      kernels::index_scores_of_candidates(c.exec, in, row0, blocks, config.candidate_block_size, scores);
      kernels::select_groups_of_candidates(c.exec, in, row0, scores, blocks, config.candidate_block_size, chosen);
    } else {
      kernels::index_scores(c.exec, in, row0, scores);
      if (layer == candidates)
        kernels::select_candidate_blocks(c.exec, in, row0, scores, config.candidate_block_size, blocks);
      kernels::select_groups(c.exec, in, row0, scores, chosen);
    }
    if (c.observer != nullptr && row0 == 0 && !restricted)
      c.observer->tensor("index_score", layer, Mat<const float>(scores));
  }
  if (c.observer != nullptr) {
    c.observer->tensor("groups", layer, Mat<const std::int32_t>(chosen));
    if (layer == candidates) c.observer->tensor("candidate_blocks", layer, Mat<const std::int32_t>(blocks));
  }
}

void engram_layer(const StepContext& c, int layer, const EngramWeights& w, const Stream& stream) {
  const LayerRows& rows = c.plan.layer(layer);
  const GroupRows::Split& split = c.groups.stream(layer);
  const Mat<const std::int64_t>& ids = c.plan.engram_ids(c.config.engram_index(layer));
  const auto n = static_cast<std::int64_t>(stream.h.extent(0));
  // Each rank answers what it owns of the rows of all groups.
  const Mat<bf16> looked_up = first_rows(c.work.rows, split.total);
  kernels::engram_lookup(c.exec, c.groups.gather(c.exec, split, ids, c.work.row_ids), w.codes, w.scales, w.first_row,
                         looked_up);
  c.grid.replica->all_reduce_or(c.exec, looked_up.data(), static_cast<std::int64_t>(looked_up.size() * sizeof(bf16)));
  if (n == 0) return;
  const Mat<const bf16> mine = GroupRows::own(split, n, looked_up);
  const Mat<bf16> kv = first_rows(c.work.engram_kv, n);
  kernels::linear(c.exec, w.wkv, 0, prepared(c, w.wkv.kind, mine), kv);
  const Mat<float> gate = first_rows(c.work.engram_gate, n);
  kernels::engram_apply(c.exec, kv, w.q_weight, w.k_weight, c.plan.image(), rows.active_rows,
                        static_cast<float>(c.config.norm_eps), gate, stream.h);
  if (c.observer != nullptr) {
    c.observer->tensor("engram_rows", layer, ids);
    c.observer->tensor("engram_gate", layer, Mat<const float>(gate));
    c.observer->tensor("engram_out", layer, Mat<const bf16>(stream.h));
  }
}

}  // namespace bathys::model
