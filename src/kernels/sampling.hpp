// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

// From logits of a vocabulary shard to scores and tokens.  Shard rows: id = first + column.
namespace bathys::kernels {

// The largest logit and its lowest id; NaN in a row gives value NaN and id -1.   logits [Q, V]   best [Q]   id [Q]
void best_logit(const Exec& exec, const Mat<const float>& logits, std::int64_t first, const Vec<float>& best,
                const Vec<std::int64_t>& id);

// sums[q] = sum over the shard of int64(round(exp(l - max) * 2^44)).   max [Q]: over the whole vocabulary   sums int64
// [Q]
void sum_exp(const Exec& exec, const Mat<const float>& logits, const Vec<const float>& max,
             const Vec<std::int64_t>& sums);

// out[q] = logits[q, id - first] where this shard owns id, else 0 bits (one owner; combined as bit patterns).  ids [Q]
// (-1: none)
void pick_logit(const Exec& exec, const Mat<const float>& logits, std::int64_t first,
                const Vec<const std::int64_t>& ids, const Vec<float>& out);

// What a draw is keyed by: never by batch, shard or step.
struct DrawKeys {
  Vec<const std::uint64_t> key;      // [Q] first 64 bits of SHA-256(seed as 8 little-endian bytes, custom_id)
  Vec<const std::int64_t> position;  // [Q] absolute position of the drawn token
  Vec<const std::int32_t> repeat;    // [Q]
  Vec<const float> temperature;      // [Q] 0: greedy (no noise)
};
// The temperature that smaller ones above 0 are taken for: they are greedy in effect, and a division by them might
// overflow.
inline constexpr float kMinTemperature = 1e-5F;

// The largest of double(logit / max(T, 1e-5)) + Gumbel noise over the shard, ties to the lowest id; with T = 0 the
// plain logit. allowed [Q, ceil(V/32)] bits of the shard's columns that top-p keeps, or empty.   best double [Q]   id
// [Q]
void draw(const Exec& exec, const Mat<const float>& logits, std::int64_t first, const DrawKeys& keys,
          const Mat<const std::uint32_t>& allowed, const Vec<double>& best, const Vec<std::int64_t>& id);

}  // namespace bathys::kernels
