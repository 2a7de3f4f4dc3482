// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"
#include "parallel/shared_counters.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

namespace bathys::parallel {

enum class Reduce { sum, min, max };

// One group of ranks and what they can do together.  Behind it: MPI over host memory, NCCL over device memory, and a
// group of one.
//
// Every rank of the group enters every call in the same order with the same counts (or, where a rank has nothing, with
// zero); counts are 64-bit and have no upper limit.  All functions throw Error(internal) with the library's words when
// communication fails.
//
// Device calls take the execution instance first: the input is everything enqueued on it before the call, the result
// is visible to everything enqueued on it after, so the caller never fences.  Pointers are to Exec's memory, device
// calls of one group are issued on one instance at a time.
class Collectives {
 public:
  Collectives() = default;
  virtual ~Collectives() = default;
  Collectives(const Collectives&) = delete;
  Collectives& operator=(const Collectives&) = delete;

  [[nodiscard]] virtual int rank() const = 0;  // of this process in the group, 0 .. size - 1
  [[nodiscard]] virtual int size() const = 0;

  // values[n] += those of the other ranks, in place.  Integers: exact, so the same bits whatever the number of ranks
  // (wraps modulo 2^64).  Floats: one order for a given number of ranks with MPI, the library's with NCCL; only for
  // `--reductions fast`.
  virtual void all_reduce_sum(const Exec& exec, std::int64_t* values, std::int64_t n) = 0;
  virtual void all_reduce_sum(const Exec& exec, float* values, std::int64_t n) = 0;
  // values[n] = maximum over ranks, in place and independent of the layout to the bit: -0 < +0, and a NaN on any rank
  // gives the quiet NaN 0x7fffffff on all.
  virtual void all_reduce_max(const Exec& exec, float* values, std::int64_t n) = 0;
  // Combines bit patterns, in place: per byte at most one rank may hold something other than zero, and all receive it.
  virtual void all_reduce_or(const Exec& exec, void* data, std::int64_t n_bytes) = 0;

  // all[size * n_bytes] = the n_bytes at `mine` of rank 0, 1, ...  `mine` may be its own place in `all`.
  virtual void all_gather(const Exec& exec, const void* mine, void* all, std::int64_t n_bytes) = 0;
  // The same with bytes_of[size] of each rank, without gaps; every rank passes the same bytes_of.
  virtual void all_gather_v(const Exec& exec, const void* mine, void* all, std::span<const std::int64_t> bytes_of) = 0;
  // send: send_bytes[0] bytes for rank 0, then those for rank 1, ...; recv: recv_bytes[0] bytes from rank 0, ...  What
  // rank a sends to b must be what b receives from a.  The buffers do not overlap.
  virtual void all_to_all_v(const Exec& exec, const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                            std::span<const std::int64_t> recv_bytes) = 0;
  virtual void broadcast(const Exec& exec, void* data, std::int64_t n_bytes, int root) = 0;
  // Waits until all work enqueued on `exec` is done, failing instead of hanging when a device collective has failed.
  virtual void wait(const Exec& exec) = 0;

  // Control and loading, on host memory.
  virtual void barrier() = 0;
  virtual void broadcast_host(void* data, std::int64_t n_bytes, int root) = 0;
  virtual void all_reduce_host(std::span<std::int64_t> values, Reduce op) = 0;
  // all[sum of bytes_of] on every rank, as all_gather_v.
  virtual void all_gather_v_host(const void* mine, void* all, std::span<const std::int64_t> bytes_of) = 0;
  // The root's `all` is cut by bytes_of[size]; rank r receives its piece at `mine`.  `all` is ignored on other ranks.
  virtual void scatter_v_host(const void* all, std::span<const std::int64_t> bytes_of, void* mine, int root) = 0;
  // The texts of all ranks, in rank order, on `root`; empty elsewhere.
  [[nodiscard]] virtual std::vector<std::string> gather_host(const std::string& mine, int root) = 0;

  // The group of those ranks that pass the same colour (>= 0), ordered by key, ties by rank.
  [[nodiscard]] virtual std::unique_ptr<Collectives> split(int colour, int key) = 0;
  // n counters that all ranks of the group share.  Collective.
  [[nodiscard]] virtual std::unique_ptr<SharedCounters> shared_counters(int n) = 0;

  // Shorthands over the above.
  [[nodiscard]] std::int64_t all_reduce_host(std::int64_t value, Reduce op);
  [[nodiscard]] std::string broadcast_host(const std::string& text, int root);
  // One value of each rank, in rank order, on all.
  template <class T>
  [[nodiscard]] std::vector<T> all_gather_host(const T& mine) {
    static_assert(std::is_trivially_copyable_v<T>);
    std::vector<T> all(static_cast<std::size_t>(size()));
    const std::vector<std::int64_t> bytes_of(all.size(), sizeof(T));
    all_gather_v_host(&mine, all.data(), bytes_of);
    return all;
  }
};

// A group of one: every call is a copy or nothing.
[[nodiscard]] std::unique_ptr<Collectives> make_single_collectives();

class NodeBoard;

struct MpiOptions {
  std::int64_t max_message_bytes = std::int64_t{1} << 30;  // larger ones are split; MPI counts are int
  bool shared_memory = true;             // reductions of a group on one node go through memory that its ranks share
  std::int64_t direct_reduce_bytes = 0;  // else from here on by parts, below by MPI's own; 0: the measured default
  NodeBoard* board = nullptr;            // where the name of the running call is shown to the watchdog
};

// All ranks of the job over MPI, on a communicator of its own.  MPI must be initialized and outlive it.  Collective.
[[nodiscard]] std::unique_ptr<Collectives> make_world_collectives(const MpiOptions& options = {});

}  // namespace bathys::parallel
