// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

// Lookups by id: token embedding and the n-gram (Engram) memory.
namespace bathys::kernels {

// out[t,:] = table row of token[t] where this rank owns it (first <= id < first + rows), else zero bits: ranks combine
// by OR.
//   table bf16 [rows, D]   out bf16 [T, D]
void embed(const Exec& exec, const Vec<const std::int32_t>& tokens, const Mat<const bf16>& table, std::int64_t first,
           const Mat<bf16>& out);

// h[t, j, :] = x[t, :] for the M copies; pre[t, :] = (1, 0, ..).   x [n, D]   h [n, M*D]   pre [n, M]
void start_stream(const Exec& exec, const Mat<const bf16>& x, const Mat<bf16>& h, const Mat<float>& pre);

// Engram rows: out[t, c*hd ..] = bf16(E4M3 code * E8M0 scale) of row id[t, c] where owned, else zero bits.
//   codes [rows, hd]   scales [rows, hd/32]   ids [T, C] int64   out [T, C*hd]
void engram_lookup(const Exec& exec, const Mat<const std::int64_t>& ids, const Mat<const std::uint8_t>& codes,
                   const Mat<const std::uint8_t>& scales, std::int64_t first, const Mat<bf16>& out);

// Per copy j: dot = dot16(h_j * (q_w k_w), key_j) * rsqrt(mean h_j^2 + eps) * rsqrt(mean key_j^2 + eps) * D^-1/2;
// gate = sigmoid(copysign(sqrt(max(|dot|, 1e-6)), dot)), 0 for image rows; h_j <- bf16(h_j + gate * value).
//   kv bf16 [n, (M+1)*D] (M keys, then the value)   q_weight, k_weight bf16 [M, D]   image by STEP row (empty: none)
//   gate_out [n, M] or empty   h [n, M*D]
void engram_apply(const Exec& exec, const Mat<const bf16>& kv, const Mat<const bf16>& q_weight,
                  const Mat<const bf16>& k_weight, const Vec<const std::uint8_t>& image,
                  const Vec<const std::int32_t>& rows, float eps, const Mat<float>& gate_out, const Mat<bf16>& h);

// Row ids of one position.  history[i] = compressed id of the token i positions back (0: the token itself), already
// replaced by the pad class where the look-back ended.  R = c0*m0; for i = 1..: R ^= c_i*m_i; ids of size i+1: R mod
// prime + offset. R is never negative: every product c*m < 2^63 by the bound on the multipliers, and XOR of
// non-negative numbers keeps the sign bit clear.
//   primes, offsets [(max_ngram-1) * heads]   out [(max_ngram-1) * heads]
BATHYS_FUNCTION void engram_hash(const std::int64_t* history, const std::int64_t* multipliers,
                                 const std::int64_t* primes, const std::int64_t* offsets, int max_ngram, int heads,
                                 std::int64_t* out) {
  std::int64_t r = history[0] * multipliers[0];
  for (int i = 1; i < max_ngram; ++i) {
    r ^= history[i] * multipliers[i];
    for (int head = 0; head < heads; ++head) {
      const int c = (i - 1) * heads + head;
      out[c] = r % primes[c] + offsets[c];
    }
  }
}

// Copies rows: out[i, :] = in[rows[i], :].   out [n, m], in [>=, m]
void gather_rows(const Exec& exec, const Mat<const bf16>& in, const Vec<const std::int32_t>& rows,
                 const Mat<bf16>& out);
void gather_rows(const Exec& exec, const Mat<const float>& in, const Vec<const std::int32_t>& rows,
                 const Mat<float>& out);

}  // namespace bathys::kernels
