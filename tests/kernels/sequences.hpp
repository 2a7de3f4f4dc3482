// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/cache.hpp"
#include "kernels/view_support.hpp"

#include <algorithm>

namespace bathys::test {

// Sequences with a state block and pages each, and the step descriptions that kernels take.  Memory starts poisoned: a
// kernel that reads what nobody wrote meets NaN codes.
class Sequences {
 public:
  Sequences(int count, std::int64_t state_bytes, int pages_each, std::int64_t bytes_of_page)
      : count_(count),
        pages_each_(pages_each),
        state_(poisoned<std::uint8_t>(count, state_bytes)),
        pages_(poisoned<std::uint8_t>(std::max(1, count * pages_each), bytes_of_page)) {}

  struct Step {
    kernels::StepSequences sequences;
    kernels::StepRows rows;
    std::int64_t n_rows = 0;
  };
  // Rows of each sequence from its first position on.
  [[nodiscard]] Step step(const std::vector<std::int64_t>& first_position,
                          const std::vector<std::int32_t>& n_rows) const {
    std::vector<std::int32_t> first_row;
    std::vector<std::int64_t> position;
    std::vector<std::int32_t> sequence;
    for (std::size_t b = 0; b < n_rows.size(); ++b) {
      first_row.push_back(static_cast<std::int32_t>(position.size()));
      for (std::int32_t i = 0; i < n_rows[b]; ++i) {
        position.push_back(first_position[b] + i);
        sequence.push_back(static_cast<std::int32_t>(b));
      }
    }
    return {{to_vec<std::int64_t>(first_position), to_vec<std::int32_t>(first_row), to_vec<std::int32_t>(n_rows),
             addresses(state_, count_)},
            {to_vec<std::int64_t>(position), to_vec<std::int32_t>(sequence)},
            static_cast<std::int64_t>(position.size())};
  }
  // Page p of sequence b is block b * pages_each + (pages_each - 1 - p): pages are found by the table, never by
  // neighbourhood.
  [[nodiscard]] kernels::SourcePages pages() const {
    std::vector<std::int32_t> first;
    for (int b = 0; b < count_; ++b) first.push_back(b * pages_each_);
    const auto blocks = addresses(pages_, std::max(1, count_ * pages_each_));
    const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), blocks);
    std::vector<kernels::BlockAddress> reversed;
    for (int b = 0; b < count_; ++b) {
      for (int p = 0; p < pages_each_; ++p)
        reversed.push_back(host(static_cast<std::size_t>(b * pages_each_ + pages_each_ - 1 - p)));
    }
    return {to_vec<kernels::BlockAddress>(reversed), to_vec<std::int32_t>(first)};
  }
  [[nodiscard]] std::uint8_t* state(int b) const {
    return state_.data() + b * static_cast<std::int64_t>(state_.stride(0));
  }
  [[nodiscard]] std::vector<std::uint8_t> state_bytes() const { return to_host(state_); }

 private:
  static Vec<kernels::BlockAddress> addresses(const Mat<std::uint8_t>& blocks, int n) {
    std::vector<kernels::BlockAddress> list;
    for (int i = 0; i < n; ++i) list.push_back({blocks.data() + i * static_cast<std::int64_t>(blocks.stride(0))});
    return to_vec<kernels::BlockAddress>(list);
  }

  int count_;
  int pages_each_;
  Mat<std::uint8_t> state_;
  Mat<std::uint8_t> pages_;
};

}  // namespace bathys::test
