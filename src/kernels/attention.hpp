// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cache.hpp"

namespace bathys::kernels {

// Sparse attention of each query over its window positions (ascending) and then its chosen groups (ascending), with a
// learned sink in the denominator.  Keys are values: one latent head serves all query heads.
//   q.k: 16 partial sums by index mod 16 (numerics/reduce.hpp), times scale; weights exp(l - max) over window, groups
//   and the sink logit (the sink is not scaled); denominator: sum16 over the keys in visiting order, then + exp(sink -
//   max); output: fp32 fma chain over keys in visiting order of exp(l - max) * v, divided by the denominator, rounded
//   to bf16.
struct AttentionInput {
  Mat<const bf16> q;             // [n, H*d]
  Vec<const std::int32_t> rows;  // [n] step row of each query (empty: row i)
  StepRows step_rows;
  StepSequences sequences;
  Mat<const std::uint8_t> window;  // [T, record] this step's window records (positions from first_position on)
  std::int64_t ring_offset = 0;    // older positions: state + ring_offset, slot = position mod W
  int window_size = 0;
  Mat<const std::int32_t> groups;  // [T, topk] chosen groups by STEP row, ascending, -1 pads; extent 0: none
  SourcePages pages;
  int index_head_dim = 0;  // for the page layout
  Vec<const float> sink;   // [H]
  int heads = 0;
  int head_dim = 0;
  float scale = 0;  // d^-1/2
};
void sparse_attention(const Exec& exec, const AttentionInput& in, const Mat<bf16>& out);  // out [n, H*d]

// A window ring, dequantized (tests and captures): kv [W, d], slot by slot.
void read_ring(const Exec& exec, const std::uint8_t* state, std::int64_t ring_offset, int window, const Mat<bf16>& kv);

}  // namespace bathys::kernels
