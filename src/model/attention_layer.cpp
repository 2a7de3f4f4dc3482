// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/attention.hpp"
#include "kernels/experts.hpp"
#include "kernels/norm_rope.hpp"
#include "model/layers.hpp"
#include "numerics/maths.hpp"

namespace bathys::model {
namespace {

using kernels::first_rows;

// RoPE angles by step row, of the kind that the layer uses.
kernels::Cube<const float> rope_table_of(const StepContext& c, int layer) {
  return c.config.ratio(layer) > 0 ? c.work.rope_compressed : c.work.rope_window;
}

// A column range of a matrix, same rows.
Mat<bf16> columns(const Mat<bf16>& m, std::int64_t begin, std::int64_t n) {
  return Mat<bf16>(Kokkos::subview(m, Kokkos::ALL, Kokkos::make_pair(begin, begin + n)));
}

// Each output group through its own wo_a, then its part of wo_b; the parts are summed as fixed-point grains, over
// output groups and tensor ranks alike.
void output_projection(const StepContext& c, int layer, const AttentionWeights& w, const Mat<bf16>& o,
                       const Mat<bf16>& y) {
  const auto& config = c.config;
  const auto n = static_cast<std::int64_t>(o.extent(0));
  const std::int64_t group_in = std::int64_t{config.n_heads / config.o_groups} * config.head_dim;
  const std::int64_t lora = config.o_lora_rank;
  const Mat<bf16> grouped = first_rows(c.work.grouped, n);
  const Mat<float> grain = first_rows(c.work.grain, n);
  const Mat<std::int64_t> sums = first_rows(c.work.sums, n);
  for (std::int64_t g = 0; g < w.wo_a.count; ++g) {
    kernels::prepare_plain(c.exec, columns(o, g * group_in, group_in), group_in,
                           c.work.plain);  // no activation quantizer here
    kernels::linear(c.exec, w.wo_a, g, c.work.plain, columns(grouped, g * lora, lora));
  }
  for (std::int64_t g = 0; g < w.wo_b.count; ++g) {
    kernels::linear(c.exec, w.wo_b, g, prepared(c, w.wo_b.kind, columns(grouped, g * lora, lora)), grain);
    kernels::add_grain(c.exec, grain, config.o_groups, g == 0, sums);
  }
  c.grid.tensor->all_reduce_sum(c.exec, sums.data(), static_cast<std::int64_t>(sums.size()));
  kernels::finish_sum(c.exec, sums, Mat<const bf16>(), c.plan.layer(layer).full_rows, layer, c.work.bad_layer, y);
}

}  // namespace

const kernels::Activation& prepared(const Exec& exec, kernels::WeightKind kind, const Mat<const bf16>& x,
                                    kernels::Activation& q8, kernels::Activation& plain) {
  const auto k = static_cast<std::int64_t>(x.extent(1));
  if (kind == kernels::WeightKind::fp4 || kind == kernels::WeightKind::fp8) {
    kernels::prepare_q8(exec, x, k, q8);
    return q8;
  }
  kernels::prepare_plain(exec, x, k, plain);
  return plain;
}

const kernels::Activation& prepared(const StepContext& c, kernels::WeightKind kind, const Mat<const bf16>& x) {
  return prepared(c.exec, kind, x, c.work.q8, c.work.plain);
}

void window_kv(const StepContext& c, int layer, const AttentionWeights& w, const Mat<const bf16>& x) {
  const LayerRows& rows = c.plan.layer(layer);
  const Mat<bf16> kv = first_rows(c.work.kv, rows.window);
  kernels::linear(c.exec, w.wkv, 0, prepared(c, w.wkv.kind, x), kv);
  kernels::rms_norm(c.exec, kv, w.kv_norm, static_cast<float>(c.config.norm_eps), kv);
  kernels::rope_rotate(c.exec, kv, 1, c.config.head_dim, rows.window_rows, rope_table_of(c, layer), false);
  kernels::store_window(c.exec, kv, rows.window_rows, first_rows(c.work.window, c.plan.rows()));
}

void attention_layer(const StepContext& c, int layer, const LayerWeights& weights, const Mat<const bf16>& x,
                     const Mat<bf16>& y) {
  const AttentionWeights& w = weights.attention;
  const auto& config = c.config;
  const LayerRows& rows = c.plan.layer(layer);
  const auto eps = static_cast<float>(config.norm_eps);
  const int heads = static_cast<int>(w.wq_b.n / config.head_dim);

  const Mat<bf16> qr = first_rows(c.work.qr, rows.full);
  kernels::linear(c.exec, w.wq_a, 0, prepared(c, w.wq_a.kind, x), qr);
  kernels::rms_norm(c.exec, qr, w.q_norm, eps, qr);
  if (weights.indexer) indexer_layer(c, layer, *weights.indexer, x, qr);
  const Mat<bf16> q = first_rows(c.work.q, rows.full);
  kernels::linear(c.exec, w.wq_b, 0, prepared(c, w.wq_b.kind, qr), q);
  const kernels::Cube<const float> rope = rope_table_of(c, layer);
  kernels::rope_rotate(c.exec, q, heads, config.head_dim, rows.full_rows, rope, false);

  const int source = c.layout.source_of_layer(layer);
  const Mat<bf16> o = first_rows(c.work.o, rows.full);
  kernels::AttentionInput in;
  in.q = q;
  in.rows = rows.full_rows;
  in.step_rows = c.plan.step_rows();
  in.sequences = c.plan.sequences();
  in.window = first_rows(c.work.window, c.plan.rows());
  in.ring_offset = c.layout.ring_offset(layer);
  in.window_size = config.window_size;
  if (source >= 0) {
    in.groups = first_rows(c.work.chosen, c.plan.rows());
    in.pages = c.plan.pages(source);
  }
  in.index_head_dim = config.index_head_dim;
  in.sink = w.sink;
  in.heads = heads;
  in.head_dim = config.head_dim;
  in.scale = numerics::reciprocal_sqrt(static_cast<float>(config.head_dim));
  kernels::sparse_attention(c.exec, in, o);
  kernels::rope_rotate(c.exec, o, heads, config.head_dim, rows.full_rows, rope, true);
  output_projection(c, layer, w, o, y);
}

}  // namespace bathys::model
