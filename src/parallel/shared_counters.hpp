// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bathys::parallel {

// Whole numbers, 0 at first, that every rank of a group reads and changes at any time without anybody else taking
// part: they lie on rank 0 and are reached by one-sided operations, each of which is one step for all ranks.
// Collectives::shared_counters makes them; they are given back by all ranks together.
class SharedCounters {
 public:
  SharedCounters() = default;
  virtual ~SharedCounters() = default;
  SharedCounters(const SharedCounters&) = delete;
  SharedCounters& operator=(const SharedCounters&) = delete;

  // Counter += value (its bits |= value); returns what it was before.
  //   throws Error(internal) with MPI's words when the network fails
  virtual std::int64_t fetch_add(int counter, std::int64_t value) = 0;
  virtual std::int64_t fetch_or(int counter, std::int64_t value) = 0;
  virtual std::int64_t read(int counter) = 0;
};

}  // namespace bathys::parallel
