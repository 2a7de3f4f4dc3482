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
  return prepared(c.exec, kind, h, c.work.inner_q8, c.work.inner_plain);
}

// Which experts the rows of this group choose.
void choose_experts(const StepContext& c, int layer, const ExpertWeights& w, const Mat<const bf16>& x,
                    const Mat<std::int32_t>& ids, const Mat<float>& weights) {
  kernels::prepare_plain(c.exec, x, c.config.dim, c.work.plain);
  const Mat<float> logits = first_rows(c.work.logits, static_cast<std::int64_t>(x.extent(0)));
  kernels::linear(c.exec, w.router, 0, c.work.plain, logits);
  kernels::gate(c.exec, logits, w.bias, w.bias_image, c.plan.image(), c.plan.layer(layer).full_rows,
                gate_settings(c.config), ids, weights);
  if (c.observer != nullptr) {
    c.observer->tensor("gate_idx", layer, Mat<const std::int32_t>(ids));
    c.observer->tensor("gate_w", layer, Mat<const float>(weights));
  }
}

// The shared expert, replicated: every rank computes it for its group's rows and adds it after the reduction.
void shared_expert(const StepContext& c, const SwigluWeights& w, const Mat<const bf16>& x, const Mat<bf16>& out) {
  const auto n = static_cast<std::int64_t>(x.extent(0));
  const Mat<bf16> gate = first_rows(c.work.gate, n), up = first_rows(c.work.up, n);
  const kernels::Activation& in = prepared(c, w.gate.kind, x);
  kernels::linear(c.exec, w.gate, 0, in, gate);
  kernels::linear(c.exec, w.up, 0, in, up);
  kernels::swiglu(c.exec, gate, up, Vec<const float>(), static_cast<float>(c.config.swiglu_limit), gate);
  kernels::linear(c.exec, w.down, 0, prepared_inner(c, w.down.kind, gate), out);
}

// This rank's experts on the rows of all groups, as fixed-point sums of each row.
void routed_experts(const StepContext& c, const ExpertWeights& w, const Mat<const bf16>& x,
                    const Mat<const std::int32_t>& ids, const Mat<const float>& weights,
                    const Mat<std::int64_t>& sums) {
  Workspace& work = c.work;
  const Mat<std::int32_t> assignment = first_rows(work.assignment, static_cast<std::int64_t>(x.extent(0)));
  kernels::group_by_expert(c.exec, ids, weights, w.first_local, w.local, work.offsets, work.row_of, work.weight_of,
                           assignment);
  // How many rows the local experts got: the one number of a layer that the host must know.
  std::int32_t assigned = 0;
  Kokkos::deep_copy(c.exec, assigned, Kokkos::subview(work.offsets, w.local));
  c.grid.replica->wait(c.exec);
  const Mat<bf16> down = first_rows(work.down, assigned);
  if (assigned > 0) {
    const kernels::Activation& in = prepared(c, w.routed.gate.kind, x);
    const Mat<bf16> gate = first_rows(work.gate, assigned), up = first_rows(work.up, assigned);
    const kernels::ExpertRows by_row{work.offsets, work.row_of};
    kernels::expert_linear(c.exec, w.routed.gate, in, by_row, gate);
    kernels::expert_linear(c.exec, w.routed.up, in, by_row, up);
    kernels::swiglu(c.exec, gate, up, first_rows(work.weight_of, assigned), static_cast<float>(c.config.swiglu_limit),
                    gate);
    kernels::expert_linear(c.exec, w.routed.down, prepared_inner(c, w.routed.down.kind, gate), {work.offsets, {}},
                           down);
  }
  kernels::sum_experts(c.exec, down, assignment, sums);
}

}  // namespace

void expert_layer(const StepContext& c, int layer, const ExpertWeights& w, const Mat<const bf16>& x,
                  const Mat<bf16>& y) {
  const GroupRows::Split& split = c.groups.full(layer);
  const auto n = static_cast<std::int64_t>(x.extent(0));
  Workspace& work = c.work;
  const Mat<std::int32_t> ids = first_rows(work.expert_ids, n);
  const Mat<float> weights = first_rows(work.expert_weights, n);
  const Mat<bf16> shared = first_rows(work.shared, n);
  if (n > 0) {
    choose_experts(c, layer, w, x, ids, weights);
    shared_expert(c, w.shared, x, shared);
  }
  // What goes round is the bf16 input and the choices: a rank then does with it what it does with its own rows.
  const Mat<const bf16> all_x = c.groups.gather(c.exec, split, x, work.all_x);
  const Mat<const std::int32_t> all_ids = c.groups.gather(c.exec, split, Mat<const std::int32_t>(ids), work.all_ids);
  const Mat<const float> all_weights = c.groups.gather(c.exec, split, Mat<const float>(weights), work.all_weights);
  const Mat<std::int64_t> sums = first_rows(work.sums, split.total);
  routed_experts(c, w, all_x, all_ids, all_weights, sums);
  c.grid.replica->all_reduce_sum(c.exec, sums.data(), static_cast<std::int64_t>(sums.size()));
  if (n > 0) {
    kernels::finish_sum(c.exec, GroupRows::own(split, n, sums), shared, c.plan.layer(layer).full_rows, layer,
                        work.bad_layer, y);
  }
}

}  // namespace bathys::model
