// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cache.hpp"

// Compressed KV of a source layer: group j of ratio r covers positions jr .. jr+r-1 and exists once its last token has
// been seen.
namespace bathys::kernels {

// The groups that this step completes, over all sequences (built on the host from positions alone).
struct StepGroups {
  Vec<const std::int32_t> sequence;  // [n_groups]
  Vec<const std::int64_t> group;     // [n_groups] j
};

// Open group of a sequence: float32 kv and gate of its pending rows at state + open_offset, layout [r-1][2][d].
// Pools each completed group: softmax per channel over the r gates, pooled = bf16(sum_t softmax_t(g) kv_t), t
// ascending; a member that precedes this step comes from the open group.   kv, gate [T, d] float32   pooled [n_groups,
// d]
void compress_pool(const Exec& exec, const Mat<const float>& kv, const Mat<const float>& gate, int ratio,
                   const StepSequences& sequences, const StepGroups& groups, std::int64_t open_offset,
                   const Mat<bf16>& pooled);

// Keeps the rows of each sequence's unfinished group for later steps (rows already pending stay).
void compress_keep_open(const Exec& exec, const Mat<const float>& kv, const Mat<const float>& gate, int ratio,
                        const StepSequences& sequences, std::int64_t open_offset);

// Stores latents (after RoPE; Q4x16) and index keys (after RoPE; Q4x32) of the completed groups into their pages.
//   latent [n_groups, d]   key [n_groups, id]
void store_groups(const Exec& exec, const Mat<const bf16>& latent, const Mat<const bf16>& key, const StepGroups& groups,
                  const SourcePages& pages);

// The reverse, for tests and captures: the first groups of one sequence.   latent [n_groups, d]   key [n_groups, id]
void read_groups(const Exec& exec, const SourcePages& pages, int sequence, std::int64_t n_groups,
                 const Mat<bf16>& latent, const Mat<bf16>& key);

}  // namespace bathys::kernels
