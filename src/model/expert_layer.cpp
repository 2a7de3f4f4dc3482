// SPDX-License-Identifier: Apache-2.0
#include "kernels/experts.hpp"
#include "model/layers.hpp"

namespace bathys::model {
namespace {

using kernels::first_rows;
using kernels::WeightKind;

kernels::GateSettings gate_settings(const config::ModelConfig& config) {
  kernels::GateSettings settings;
  switch (config.score_func) {
    case config::ScoreFunction::softmax:
      settings.function = kernels::GateFunction::softmax;
      break;
    case config::ScoreFunction::sigmoid:
      settings.function = kernels::GateFunction::sigmoid;
      break;
    case config::ScoreFunction::sqrtsoftplus:
      settings.function = kernels::GateFunction::sqrtsoftplus;
      break;
  }
  settings.temperature = static_cast<float>(config.gate_temp);
  settings.normalize = config.norm_topk_prob;
  settings.route_scale = static_cast<float>(config.route_scale);
  return settings;
}

// The hidden rows of an expert, prepared for its second matrix.
const kernels::Activation& prepared_inner(const StepContext& c, WeightKind kind, const Mat<const bf16>& h) {
  const auto k = static_cast<std::int64_t>(h.extent(1));
  if (kind == WeightKind::fp4 || kind == WeightKind::fp8) {
    kernels::prepare_q8(c.exec, h, k, c.work.inner_q8);
    return c.work.inner_q8;
  }
  kernels::prepare_plain(c.exec, h, k, c.work.inner_plain);
  return c.work.inner_plain;
}

}  // namespace

void expert_layer(const StepContext& c, int layer, const ExpertWeights& w, const Mat<const bf16>& x,
                  const Mat<bf16>& y) {
  const auto& config = c.config;
  const LayerRows& rows = c.plan.layer(layer);
  const std::int64_t n = rows.full;
  const auto limit = static_cast<float>(config.swiglu_limit);
  Workspace& work = c.work;

  kernels::prepare_plain(c.exec, x, config.dim, work.plain);
  const Mat<float> logits = first_rows(work.logits, n);
  kernels::linear(c.exec, w.router, 0, work.plain, logits);
  const Mat<std::int32_t> ids = first_rows(work.expert_ids, n);
  const Mat<float> weights = first_rows(work.expert_weights, n);
  kernels::gate(c.exec, logits, w.bias, w.bias_image, c.plan.image(), rows.full_rows, gate_settings(config), ids,
                weights);
  if (c.observer != nullptr) {
    c.observer->tensor("gate_idx", layer, Mat<const std::int32_t>(ids));
    c.observer->tensor("gate_w", layer, Mat<const float>(weights));
  }

  // The shared expert, replicated: every rank computes it and adds it after the reduction.
  const Mat<bf16> shared_gate = first_rows(work.gate, n), shared_up = first_rows(work.up, n),
                  shared = first_rows(work.shared, n);
  const kernels::Activation& shared_in = prepared(c, w.shared.gate.kind, x);
  kernels::linear(c.exec, w.shared.gate, 0, shared_in, shared_gate);
  kernels::linear(c.exec, w.shared.up, 0, shared_in, shared_up);
  kernels::swiglu(c.exec, shared_gate, shared_up, Vec<const float>(), limit, shared_gate);
  kernels::linear(c.exec, w.shared.down, 0, prepared_inner(c, w.shared.down.kind, shared_gate), shared);

  const Mat<std::int32_t> assignment = first_rows(work.assignment, n);
  kernels::group_by_expert(c.exec, ids, weights, w.first_local, w.local, work.offsets, work.row_of, work.weight_of,
                           assignment);
  // How many rows the local experts got: the one number of a layer that the host must know.
  std::int32_t assigned = 0;
  Kokkos::deep_copy(c.exec, assigned, Kokkos::subview(work.offsets, w.local));
  c.ranks.wait(c.exec);
  const Mat<bf16> down = first_rows(work.down, assigned);
  if (assigned > 0) {
    const kernels::Activation& routed_in = prepared(c, w.routed.gate.kind, x);
    const Mat<bf16> gate = first_rows(work.gate, assigned), up = first_rows(work.up, assigned);
    const kernels::ExpertRows by_row{work.offsets, work.row_of};
    kernels::expert_linear(c.exec, w.routed.gate, routed_in, by_row, gate);
    kernels::expert_linear(c.exec, w.routed.up, routed_in, by_row, up);
    kernels::swiglu(c.exec, gate, up, first_rows(work.weight_of, assigned), limit, gate);
    kernels::expert_linear(c.exec, w.routed.down, prepared_inner(c, w.routed.down.kind, gate), {work.offsets, {}},
                           down);
  }
  const Mat<std::int64_t> sums = first_rows(work.sums, n);
  kernels::sum_experts(c.exec, down, assignment, sums);
  c.ranks.all_reduce_sum(c.exec, sums.data(), static_cast<std::int64_t>(sums.size()));
  kernels::finish_sum(c.exec, sums, shared, rows.full_rows, layer, work.bad_layer, y);
}

}  // namespace bathys::model
