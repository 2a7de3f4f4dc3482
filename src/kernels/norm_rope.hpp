// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

#include <vector>

// Root-mean-square norm and rotary positions.
namespace bathys::kernels {

// y[t,:] = bf16(gain * x[t,:] * rsqrt(mean(x[t,:]^2) + eps)).  x, y [n, D] (may be the same View), gain bf16 [D].
void rms_norm(const Exec& exec, const Mat<const bf16>& x, const Vec<const bf16>& gain, float eps, const Mat<bf16>& y);

// Frequencies of the e/2 rotated pairs, float32 throughout (the rounding of the power and of the product position *
// freq is the angle): freq_j = 1 / f32(base^(2j/e)), with YaRN when original_seq_len > 0.
struct RopeSettings {
  int rope_dim = 0;
  double theta = 10000;
  std::int64_t original_seq_len = 0;  // 0: no YaRN
  double factor = 1, beta_fast = 32, beta_slow = 1;
};
std::vector<float> rope_frequencies(const RopeSettings& settings);

// cos and sin of f32(position * freq), taken in double by the program's own functions and rounded: table[t, j, 0..1].
//   positions [n]   freqs [e/2]   table [n, e/2, 2]
void rope_table(const Exec& exec, const Vec<const std::int64_t>& positions, const Vec<const float>& freqs,
                const Cube<float>& table);

// Rotates the last e elements of each head in place (adjacent pairs as complex numbers), `inverse` by the conjugate,
// rounding to bf16.
//   x [n, heads * d]   rows [n]: table row of each x row (empty: row i takes table row i)   table [>=, e/2, 2]
void rope_rotate(const Exec& exec, const Mat<bf16>& x, int heads, int head_dim, const Vec<const std::int32_t>& rows,
                 const Cube<const float>& table, bool inverse);

}  // namespace bathys::kernels
