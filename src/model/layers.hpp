// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/cache_layout.hpp"
#include "model/group_rows.hpp"
#include "model/observer.hpp"
#include "model/step_plan.hpp"
#include "model/weights.hpp"
#include "model/workspace.hpp"
#include "parallel/rank_grid.hpp"

#include <vector>

// The layers of the backbone, as functions over one step's context.  They read as the architecture does:
// docs/numerics.md.
namespace bathys::model {

// Everything that a layer works with, for one step.
struct StepContext {
  const Exec& exec;
  const config::ModelConfig& config;
  const CacheLayout& layout;
  const StepPlan& plan;
  const GroupRows& groups;
  Workspace& work;
  const parallel::RankGrid& grid;
  kernels::Vec<const float> compressed_freqs;  // RoPE frequencies of layers with ratio > 0
  Observer* observer = nullptr;
};

// The stream at a layer: the rows that are at hand, compacted.
struct Stream {
  Mat<bf16> h;     // [n, M*D]
  Mat<float> pre;  // [n, M]
};

// Adds the n-gram memory to the stream of the layer's active rows.  Entered by all groups of the replica when any of
// them has active rows.
void engram_layer(const StepContext& c, int layer, const EngramWeights& w, const Stream& stream);

// What a KV source produces for later positions: pooled latents and index keys of the groups that this step completes.
//   x [T, D] the normed attention input of all step rows
void compressor_layer(const StepContext& c, int layer, const CompressorWeights& w, const Mat<const bf16>& x);

// Which groups each full row attends to, left in work.chosen by step row (and work.blocks at the candidate source).
//   x [full, D]   qr [full, q_lora]
void indexer_layer(const StepContext& c, int layer, const IndexerWeights& w, const Mat<const bf16>& x,
                   const Mat<const bf16>& qr);

// Window KV of the layer's window rows into work.window.   x [window, D]
void window_kv(const StepContext& c, int layer, const AttentionWeights& w, const Mat<const bf16>& x);

// Attention of the full rows, up to and including the sum over output groups and tensor ranks, into y.   x [full, D]
// y [full, D]
void attention_layer(const StepContext& c, int layer, const LayerWeights& w, const Mat<const bf16>& x,
                     const Mat<bf16>& y);

// Routed and shared experts, summed over the ranks of the replica, into y.  Entered by all its groups when any of them
// has full rows.   x [full, D]   y [full, D]
void expert_layer(const StepContext& c, int layer, const ExpertWeights& w, const Mat<const bf16>& x,
                  const Mat<bf16>& y);

// Prepares x [n, k] for weights of this kind in `q8` (quantized ones) or `plain` and returns that; without them in the
// workspace's.
const kernels::Activation& prepared(const Exec& exec, kernels::WeightKind kind, const Mat<const bf16>& x,
                                    kernels::Activation& q8, kernels::Activation& plain);
const kernels::Activation& prepared(const StepContext& c, kernels::WeightKind kind, const Mat<const bf16>& x);

}  // namespace bathys::model
