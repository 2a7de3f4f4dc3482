// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/parallel: reductions between ranks of one node through memory that they share.  MPI moves every
// operand through its own buffers and message matching; here each rank writes its operand once and reads its part of
// everybody's.

#include "parallel/mpi_support.hpp"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>

#include <sched.h>

namespace bathys::parallel {

class SharedArena {
 public:
  // The arena of a communicator whose ranks are all on one node, else nothing, the same on all ranks.  Collective.
  [[nodiscard]] static std::unique_ptr<SharedArena> over(MPI_Comm comm);
  ~SharedArena();
  SharedArena(const SharedArena&) = delete;
  SharedArena& operator=(const SharedArena&) = delete;

  // values[n] = combine over the ranks in ascending order, in place, the same on all.
  template <class T, class Combine>
  void all_reduce(T* values, std::int64_t n, Combine combine) {
    constexpr std::int64_t capacity = kRegionBytes / static_cast<std::int64_t>(sizeof(T));
    for (std::int64_t done = 0; done < n; done += capacity)
      reduce_chunk(values + done, std::min(capacity, n - done), combine);
  }

 private:
  static constexpr std::int64_t kRegionBytes = std::int64_t{128} << 10;  // the regions of one rank stay in its L2 cache
  static constexpr std::int64_t kTogetherBytes = std::int64_t{2}
                                                 << 10;  // up to here each rank combines all, which saves a round
  static constexpr int kSpins = 200;                     // then give the core away: ranks may outnumber cores

  struct alignas(64) Cell {
    std::atomic<std::uint64_t> round{0};
    // Operands alternate between two regions: who writes one again has passed a round that all entered after reading
    // it.
    alignas(64) std::byte operand[2][kRegionBytes];
    alignas(64) std::byte result[kRegionBytes];
  };

  SharedArena(Communicator comm, MPI_Win window, Cell* cells) : comm_(std::move(comm)), window_(window), cells_(cells) {
    rank_ = comm_.rank();
    size_ = comm_.size();
  }

  // Returns when every rank has come here: what they wrote before is visible.
  void meet() {
    ++round_;
    cells_[rank_].round.store(round_, std::memory_order_release);
    for (int r = 0; r < size_; ++r) {
      for (int spins = 0; cells_[r].round.load(std::memory_order_acquire) < round_; ++spins) {
        if (spins < kSpins) {
          __builtin_ia32_pause();
        } else {
          ::sched_yield();
        }
      }
    }
  }

  template <class T>
  [[nodiscard]] const T* operand_of(int r) const {
    return reinterpret_cast<const T*>(cells_[r].operand[parity_]);
  }

  // out[n] = elements begin .. begin + n of all operands, combined.
  template <class T, class Combine>
  void combine_range(std::int64_t begin, std::int64_t n, T* out, Combine combine) const {
    const T* const first = operand_of<T>(0) + begin;
    const T* const second = operand_of<T>(1) + begin;
    for (std::int64_t i = 0; i < n; ++i) out[i] = combine(first[i], second[i]);
    for (int r = 2; r < size_; ++r) {
      const T* const next = operand_of<T>(r) + begin;
      for (std::int64_t i = 0; i < n; ++i) out[i] = combine(out[i], next[i]);
    }
  }

  template <class T, class Combine>
  void reduce_chunk(T* values, std::int64_t n, Combine combine) {
    parity_ ^= 1;
    std::memcpy(cells_[rank_].operand[parity_], values, static_cast<std::size_t>(n) * sizeof(T));
    meet();
    if (n * static_cast<std::int64_t>(sizeof(T)) <= kTogetherBytes) {
      combine_range(0, n, values, combine);
      return;
    }
    const auto begin_of = [this, n](int r) { return n / size_ * r + std::min<std::int64_t>(r, n % size_); };
    const auto result_of = [this](int r) { return reinterpret_cast<T*>(cells_[r].result); };
    combine_range(begin_of(rank_), begin_of(rank_ + 1) - begin_of(rank_), result_of(rank_), combine);
    meet();
    for (int r = 0; r < size_; ++r) {
      const std::int64_t part = begin_of(r + 1) - begin_of(r);
      std::memcpy(values + begin_of(r), result_of(r), static_cast<std::size_t>(part) * sizeof(T));
    }
  }

  Communicator comm_;
  MPI_Win window_;
  Cell* cells_;
  int rank_ = 0;
  int size_ = 1;
  int parity_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace bathys::parallel
