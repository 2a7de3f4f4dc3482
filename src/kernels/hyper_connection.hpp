// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

// Hyper-connections: the residual stream is M copies of width D; small learned mixes collapse and update it.
namespace bathys::kernels {

struct HyperConnectionWeights {
  Mat<const float> fn;     // [(2+M)M, M*D]
  Vec<const float> scale;  // [3]
  Vec<const float> base;   // [(2+M)M]
};
struct HyperConnectionMix {
  Mat<float> pre;   // [n, M]
  Mat<float> post;  // [n, M]
  Mat<float> comb;  // [n, M*M], row-major
};

// m = (F h) * rsqrt(mean(h^2) + norm_eps) over the flattened copies, then
//   pre = sigmoid(m_pre*scale0 + base) + hc_eps; post = 2*sigmoid(m_post*scale1 + base);
//   comb: softmax over each row of (m_comb*scale2 + base), + hc_eps; divided by (column sum + hc_eps); then iters-1
//   times by (row sum + hc_eps) and by (column sum + hc_eps). h bf16 [n, M*D]
void hc_mixes(const Exec& exec, const Mat<const bf16>& h, const HyperConnectionWeights& w, int copies,
              int sinkhorn_iters, float hc_eps, float norm_eps, const HyperConnectionMix& out);

// The last part of hc_mixes alone (from m on), for one token; m has (2+M)M entries.  Used by hc_mixes and by tests.
BATHYS_FUNCTION void hc_mix_from_dots(const float* m, const float* scale, const float* base, int copies, int iters,
                                      float hc_eps, float* pre, float* post, float* comb);

// x[t,:] = bf16(sum_j pre[t,j] h[t,j,:]).   h [n, M*D]   pre [n, M]   x [n, D]
void hc_pre(const Exec& exec, const Mat<const bf16>& h, const Mat<const float>& pre, const Mat<bf16>& x);

// h[t,k,:] = bf16(post[t,k] y[t,:] + sum_j comb[t,j,k] h[t,j,:]), in place: the sum runs over comb's FIRST index.
//   y [n, D]   h [n, M*D]
void hc_post(const Exec& exec, const Mat<const bf16>& y, const Mat<const float>& post, const Mat<const float>& comb,
             const Mat<bf16>& h);

}  // namespace bathys::kernels

#include "kernels/hyper_connection_inline.hpp"
