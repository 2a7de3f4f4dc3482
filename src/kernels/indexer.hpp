// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cache.hpp"

// Which groups a query attends to.
namespace bathys::kernels {

// Q4x32 in place: x <- bf16(q * s) over groups of 32 along the row.   x [n, m], m a multiple of 32
void quantize_q4x32_in_place(const Exec& exec, const Mat<bf16>& x);

// What the index scores are taken over.  Query row i is step row rows[i]; reachable groups are j < floor((position + 1)
// / ratio).
struct IndexQueries {
  Mat<const bf16> q;             // [n, IH*id] after RoPE and Q4x32
  Mat<const bf16> weight;        // [n, IH] weights_proj(x); multiplied by f32(id^-1/2 * IH^-1/2) in float32
  Vec<const std::int32_t> rows;  // [n] step rows (empty: row i)
  StepRows step_rows;
  SourcePages pages;
  int heads = 0, index_head_dim = 0, head_dim = 0, ratio = 1;
};

// score(t, j) = sum16 over heads of relu(q.k_j) * w, q.k by 16 partial sums.  Rows [row0, row0 + n_scores) of the
// queries. Without candidates column j is group j; columns at and beyond the reachable count are not written.
//   scores [n_scores, >= max reachable]
void index_scores(const Exec& exec, const IndexQueries& in, std::int64_t row0, const Mat<float>& scores);
// With candidates (by STEP row, ascending block ids, -1 pads): column c*block + o is group blocks[t,c]*block + o;
// columns of unreachable groups are set to -infinity.
void index_scores_of_candidates(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                                const Mat<const std::int32_t>& blocks, int block, const Mat<float>& scores);

// The topk best reachable groups of each row (all of them if fewer), ties to the lower group, sorted ascending, -1
// pads, written by STEP row.  NaN scores rank below every number.  Validity never rests on a padding score.
//   chosen [T, topk]
void select_groups(const Exec& exec, const IndexQueries& in, std::int64_t row0, const Mat<const float>& scores,
                   const Mat<std::int32_t>& chosen);
void select_groups_of_candidates(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                                 const Mat<const float>& scores, const Mat<const std::int32_t>& blocks, int block,
                                 const Mat<std::int32_t>& chosen);

// Candidate blocks: a block's score is its best reachable member; the block of the newest reachable group is always
// kept and counts as one; the topk_blocks best (ties: the lower block), ascending, -1 pads, by STEP row.   blocks [T,
// topk_blocks]
void select_candidate_blocks(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                             const Mat<const float>& scores, int block, const Mat<std::int32_t>& blocks);

// The row functions behind them (host and device), used by tests directly: scores [len], out [k] ascending, -1 pads.
BATHYS_FUNCTION void select_topk_row(const float* scores, std::int64_t len, int k, std::int32_t* out);
BATHYS_FUNCTION void select_blocks_row(const float* scores, std::int64_t len, int block, int k, std::int32_t* out);

}  // namespace bathys::kernels

#include "kernels/indexer_inline.hpp"
