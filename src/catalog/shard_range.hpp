// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>

namespace bathys::catalog {

// Half-open range of units [begin, end).
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  [[nodiscard]] constexpr std::int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// The contiguous block of `rank` when `total` units are shared by `ranks` ranks as evenly as can be: the first total %
// ranks ranks hold one unit more than the others.  Blocks follow each other in rank order; a block is empty when there
// are fewer units than ranks.  Expects total >= 0, ranks >= 1, 0 <= rank < ranks.
constexpr Range shard_range(std::int64_t total, int ranks, int rank) {
  const std::int64_t share = total / ranks;
  const std::int64_t longer = total % ranks;
  const std::int64_t begin = share * rank + std::min<std::int64_t>(rank, longer);
  return {begin, begin + share + (rank < longer ? 1 : 0)};
}

// The rank whose block of shard_range holds `unit`.  Expects 0 <= unit < total.
constexpr int shard_owner(std::int64_t total, int ranks, std::int64_t unit) {
  const std::int64_t share = total / ranks;
  const std::int64_t longer = total % ranks;
  const std::int64_t in_longer = longer * (share + 1);
  return static_cast<int>(unit < in_longer ? unit / (share + 1) : longer + (unit - in_longer) / share);
}

}  // namespace bathys::catalog
