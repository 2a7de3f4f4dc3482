// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hyper_connection.hpp"
#include "numerics/maths.hpp"
#include "numerics/reduce.hpp"

namespace bathys::kernels {

namespace detail {

// Divides each row (or column) of comb by its sum + eps.
BATHYS_FUNCTION void divide_by_sums(float* comb, std::int64_t copies, std::int64_t step_across, std::int64_t step_along,
                                    float eps) {
  for (std::int64_t line = 0; line < copies; ++line) {
    float* first = comb + line * step_across;
    const float sum = numerics::sum16(copies, [=](std::int64_t i) { return first[i * step_along]; }) + eps;
    for (std::int64_t i = 0; i < copies; ++i) first[i * step_along] /= sum;
  }
}

}  // namespace detail

BATHYS_FUNCTION void hc_mix_from_dots(const float* m, const float* scale, const float* base, int copies, int iters,
                                      float hc_eps, float* pre, float* post, float* comb) {
  for (int j = 0; j < copies; ++j) {
    pre[j] = numerics::sigmoid(m[j] * scale[0] + base[j]) + hc_eps;
    post[j] = 2.0F * numerics::sigmoid(m[copies + j] * scale[1] + base[copies + j]);
  }
  for (int j = 0; j < copies; ++j) {
    float* row = comb + std::int64_t{j} * copies;
    const int at = (2 + j) * copies;
    float largest = m[at] * scale[2] + base[at];
    for (int k = 0; k < copies; ++k) {
      row[k] = m[at + k] * scale[2] + base[at + k];
      largest = row[k] > largest ? row[k] : largest;
    }
    for (int k = 0; k < copies; ++k) row[k] = numerics::exp_float(row[k] - largest);
    const float sum = numerics::sum16(copies, [=](std::int64_t k) { return row[k]; });
    for (int k = 0; k < copies; ++k) row[k] = row[k] / sum + hc_eps;
  }
  detail::divide_by_sums(comb, copies, 1, copies, hc_eps);
  for (int i = 1; i < iters; ++i) {
    detail::divide_by_sums(comb, copies, copies, 1, hc_eps);
    detail::divide_by_sums(comb, copies, 1, copies, hc_eps);
  }
}

}  // namespace bathys::kernels
