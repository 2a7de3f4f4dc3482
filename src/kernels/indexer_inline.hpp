// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/indexer.hpp"
#include "numerics/bits.hpp"

// Exact selection of the k best without workspace: the k-th best key is found byte by byte with a histogram, then one
// pass in index order emits what is above it and the first of what equals it.  So ties go to the lower index and the
// result is sorted.
namespace bathys::kernels {

namespace detail {

// Order-preserving key of a score: NaN lowest (0), then -infinity; -0 equals +0.
BATHYS_FUNCTION std::uint32_t score_key(float score) {
  if (numerics::is_nan(score)) return 0;
  const std::uint32_t u = numerics::bits_of_float(score + 0.0F);
  return (u & 0x80000000U) != 0 ? ~u : u | 0x80000000U;
}

// The k-th largest of key(0..n), 1 <= k <= n, and how many keys are larger.
struct KthKey {
  std::uint32_t key = 0;
  std::int64_t n_above = 0;
};
template <class Key>
BATHYS_FUNCTION KthKey kth_largest(std::int64_t n, std::int64_t k, const Key& key) {
  KthKey found;
  std::uint32_t known = 0;  // mask of the bytes found so far
  for (int shift = 24; shift >= 0; shift -= 8) {
    std::int32_t count[256] = {};
    for (std::int64_t i = 0; i < n; ++i) {
      const std::uint32_t v = key(i);
      if ((v & known) == found.key) ++count[(v >> shift) & 0xffU];
    }
    int digit = 255;
    while (found.n_above + count[digit] < k) found.n_above += count[digit--];
    found.key |= static_cast<std::uint32_t>(digit) << shift;
    known |= 0xffU << shift;
  }
  return found;
}

// Calls take(i) for the k best of n keys (all if fewer), ascending.
template <class Key, class Take>
BATHYS_FUNCTION void take_best(std::int64_t n, std::int64_t k, const Key& key, const Take& take) {
  if (k <= 0) return;
  if (n <= k) {
    for (std::int64_t i = 0; i < n; ++i) take(i);
    return;
  }
  const KthKey least = kth_largest(n, k, key);
  std::int64_t equals = k - least.n_above;
  for (std::int64_t i = 0; i < n; ++i) {
    const std::uint32_t v = key(i);
    if (v > least.key) {
      take(i);
    } else if (v == least.key && equals > 0) {
      --equals;
      take(i);
    }
  }
}

}  // namespace detail

BATHYS_FUNCTION void select_topk_row(const float* scores, std::int64_t len, int k, std::int32_t* out) {
  int n = 0;
  detail::take_best(
      len, k, [scores](std::int64_t i) { return detail::score_key(scores[i]); },
      [&n, out](std::int64_t i) { out[n++] = static_cast<std::int32_t>(i); });
  for (; n < k; ++n) out[n] = -1;
}

BATHYS_FUNCTION void select_blocks_row(const float* scores, std::int64_t len, int block, int k, std::int32_t* out) {
  const std::int64_t n_blocks = (len + block - 1) / block;
  // The newest block beats every key; a block whose best member is no number, or -infinity, gets key 0.
  const std::uint32_t lowest = detail::score_key(numerics::float_of_bits(0xff800000U));
  const auto block_key = [=](std::int64_t b) {
    if (b == n_blocks - 1) return 0xffffffffU;
    std::uint32_t best = 0;
    for (std::int64_t i = b * block; i < (b + 1) * block; ++i) {
      const std::uint32_t key = detail::score_key(scores[i]);
      best = key > best ? key : best;
    }
    return best > lowest ? best : 0U;
  };
  int n = 0;
  detail::take_best(n_blocks, k, block_key, [&n, &block_key, out](std::int64_t b) {
    if (block_key(b) != 0) out[n++] = static_cast<std::int32_t>(b);
  });
  for (; n < k; ++n) out[n] = -1;
}

}  // namespace bathys::kernels
