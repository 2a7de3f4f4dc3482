// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

// Mixture of experts: the gate, the grouping of rows by expert, SwiGLU, and the exact sums.
namespace bathys::kernels {

enum class GateFunction { softmax, sigmoid, sqrtsoftplus };
struct GateSettings {
  GateFunction function = GateFunction::sqrtsoftplus;
  float temperature = 1;
  bool normalize = true;  // divide by (sum + 1e-20) when more than one is chosen
  float route_scale = 1;
};

// Chooses the k largest of score + bias (float32 sum; ties: the lower expert); the weights are the unbiased scores,
// normalized and scaled. Stable for logits from -100 to 90 and beyond (softplus(x) = x above 20).
//   logits [n, E] = W x   bias [E]   bias_image [E] or empty: used for rows with image[step row] != 0
//   chosen [n, k] ascending expert ids   weight [n, k]
void gate(const Exec& exec, const Mat<const float>& logits, const Vec<const float>& bias,
          const Vec<const float>& bias_image, const Vec<const std::uint8_t>& image, const Vec<const std::int32_t>& rows,
          const GateSettings& settings, const Mat<std::int32_t>& chosen, const Mat<float>& weight);

// Groups (row, choice) pairs of the local experts [first, first + count) by expert, rows ascending within one.
//   offsets [count + 1]   row_of, weight_of [n*k]   assignment [n, k]: where pair (row, choice) went, -1 if the expert
//   is elsewhere
void group_by_expert(const Exec& exec, const Mat<const std::int32_t>& chosen, const Mat<const float>& weight, int first,
                     int count, const Vec<std::int32_t>& offsets, const Vec<std::int32_t>& row_of,
                     const Vec<float>& weight_of, const Mat<std::int32_t>& assignment);

// h[a,:] = bf16(weight[a] * (silu(g) * u)), with u clamped to +-limit and g to at most limit when limit > 0.  weight
// empty: 1.
//   g, u [n, I] bf16   h [n, I]
void swiglu(const Exec& exec, const Mat<const bf16>& g, const Mat<const bf16>& u, const Vec<const float>& weight,
            float limit, const Mat<bf16>& h);

// sums[t, :] = sum over the row's local assignments of int64(round(y * 2^36)); sums[t, D] counts grains that are not
// finite or too large
// (|v| >= 2^26 / n_grains, n_grains = chosen experts of a row).   y bf16 [assignments, D]   sums int64 [n, D+1],
// overwritten
void sum_experts(const Exec& exec, const Mat<const bf16>& y, const Mat<const std::int32_t>& assignment,
                 const Mat<std::int64_t>& sums);
// out = bf16(f32(double(sum) * 2^-36) + shared): after the reduction over ranks.   shared bf16 [n, D] (empty: no shared
// part) A row whose sums[t, D] is not 0 marks bad_layer[step row] = min(bad_layer, layer).
void finish_sum(const Exec& exec, const Mat<const std::int64_t>& sums, const Mat<const bf16>& shared,
                const Vec<const std::int32_t>& rows, int layer, const Vec<std::int32_t>& bad_layer,
                const Mat<bf16>& out);

// The same for wo_b: sums[t, :] (+)= int64(round(y * 2^36)), y float32 [n, D] of one output group; n_grains = o_groups.
// first: overwrite instead of add (and clear the flag column).
void add_grain(const Exec& exec, const Mat<const float>& y, int n_grains, bool first, const Mat<std::int64_t>& sums);

}  // namespace bathys::kernels
