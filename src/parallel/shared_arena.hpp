// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/parallel: reductions between ranks of one node through memory that they share.  MPI moves every
// operand through its own buffers and message matching; here each rank writes its operand once and reads its part of
// everybody's.

#include "parallel/mpi_support.hpp"

#ifdef __SSE2__
#include <emmintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <utility>

#include <sched.h>
#include <unistd.h>

namespace bathys::parallel {

// Where the part of rank r begins when n elements are shared out as evenly as can be; that of rank `size` is n.
inline std::int64_t part_begin(std::int64_t n, int size, int r) {
  return n / size * r + std::min<std::int64_t>(r, n % size);
}

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
  static constexpr std::int64_t kRegionBytes = std::int64_t{512} << 10;  // a round costs little beside it
  static constexpr std::int64_t kTogetherBytes = std::int64_t{2}
                                                 << 10;  // up to here each rank combines all, which saves a round
  static constexpr std::int64_t kStreamedBytes = std::int64_t{4} << 10;
  // Polls before the core is given away, about a millisecond: a yield that comes too early waits for a whole time
  // slice of whatever else runs.  Where ranks outnumber cores, somebody needs the core at once.
  static constexpr int kPatientPolls = 20000;
  static constexpr int kCrowdedPolls = 100;

  // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): what nobody has written nobody reads, or touches its pages
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
    polls_ = size_ <= ::sysconf(_SC_NPROCESSORS_ONLN) ? kPatientPolls : kCrowdedPolls;
  }

  static void pause_core() {
#ifdef __SSE2__
    _mm_pause();
#endif
  }

  // Returns when every rank has come here: what they wrote before is visible.
  void meet() {
    ++round_;
    cells_[rank_].round.store(round_, std::memory_order_release);
    for (int r = 0; r < size_; ++r) {
      for (int polls = 0; cells_[r].round.load(std::memory_order_acquire) < round_; ++polls) {
        if (polls < polls_) {
          pause_core();
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

  // values[begin .. end) = the operands of all ranks, combined; rank 0's own is in place.
  template <class T, class Combine>
  void combine_range(std::int64_t begin, std::int64_t end, T* values, Combine combine) const {
    if (rank_ > 0) copy(operand_of<T>(0), values, begin, end);
    for (int r = 1; r < size_; ++r) {
      const T* const next = operand_of<T>(r);
      for (std::int64_t i = begin; i < end; ++i) values[i] = combine(values[i], next[i]);
    }
  }

  template <class T, class Combine>
  void reduce_chunk(T* values, std::int64_t n, Combine combine) {
    parity_ ^= 1;
    T* const operand = reinterpret_cast<T*>(cells_[rank_].operand[parity_]);
    if (n * static_cast<std::int64_t>(sizeof(T)) <= kTogetherBytes) {
      copy(values, operand, 0, n);
      meet();
      combine_range(0, n, values, combine);
      return;
    }
    // One's own part crosses to the others as a result only; that of rank 0 is not even copied.
    const auto begin_of = [this, n](int r) { return part_begin(n, size_, r); };
    const std::int64_t begin = begin_of(rank_);
    const std::int64_t end = begin_of(rank_ + 1);
    publish(values, operand, 0, begin);
    if (rank_ > 0) copy(values, operand, begin, end);
    publish(values, operand, end, n);
    meet();
    combine_range(begin, end, values, combine);
    publish(values, reinterpret_cast<T*>(cells_[rank_].result), begin, end);
    meet();
    for (int r = 0; r < size_; ++r) {
      if (r != rank_) copy(reinterpret_cast<const T*>(cells_[r].result), values, begin_of(r), begin_of(r + 1));
    }
  }

  // Elements begin .. end from one array to the same places of another.
  template <class T>
  static void copy(const T* from, T* to, std::int64_t begin, std::int64_t end) {
    std::memcpy(to + begin, from + begin, static_cast<std::size_t>(end - begin) * sizeof(T));
  }

  // The same for what others will read.  Long pieces go past the caches: a line fetched out of another core's cache
  // costs up to three times what it costs from memory, depending on where the two cores sit (measured;
  // reduce_speed.cpp).
  template <class T>
  static void publish(const T* from, T* to, std::int64_t begin, std::int64_t end) {
    const std::int64_t n_bytes = (end - begin) * static_cast<std::int64_t>(sizeof(T));
#ifdef __SSE2__
    if (n_bytes >= kStreamedBytes) {
      stream_bytes(reinterpret_cast<const char*>(from + begin), reinterpret_cast<char*>(to + begin), n_bytes);
      return;
    }
#endif
    if (n_bytes > 0) copy(from, to, begin, end);
  }

#ifdef __SSE2__
  static void stream_bytes(const char* from, char* to, std::int64_t n_bytes) {
    std::int64_t at = -reinterpret_cast<std::intptr_t>(to) & 15;
    std::memcpy(to, from, static_cast<std::size_t>(at));
    for (; at + 16 <= n_bytes; at += 16) {
      _mm_stream_si128(reinterpret_cast<__m128i*>(to + at),
                       _mm_loadu_si128(reinterpret_cast<const __m128i*>(from + at)));
    }
    std::memcpy(to + at, from + at, static_cast<std::size_t>(n_bytes - at));
    _mm_sfence();  // streamed stores are ordered by nothing else
  }
#endif

  Communicator comm_;
  MPI_Win window_;
  Cell* cells_;
  int rank_ = 0;
  int size_ = 1;
  int polls_ = kCrowdedPolls;
  int parity_ = 0;
  std::uint64_t round_ = 0;
};

}  // namespace bathys::parallel
