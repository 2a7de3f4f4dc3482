// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <cstdint>
#include <memory>

namespace bathys::eval {

// What all groups of all replicas know of one start of a run: whose turn the next request is, how many answers there
// are, whether to stop.  Nobody waits for anybody: each number is read and changed one-sidedly.
class RunCounters {
 public:
  // takers: groups that take requests; one needs no numbers that others see.  Collective over the world.
  RunCounters(parallel::Collectives& world, int takers);

  // The next `n` of the requests to do: the index of the first of them.  It may lie at or beyond the last.
  std::int64_t take(std::int64_t n) { return counters_->fetch_add(kNext, n); }

  // n answers more, `failed` of them failures.  Returns the failures so far.
  std::int64_t add_answers(std::int64_t n, std::int64_t failed);
  [[nodiscard]] std::int64_t answers() const { return counters_->read(kAnswers); }
  [[nodiscard]] std::int64_t failures() const { return counters_->read(kFailures); }

  // Why all replicas should end before the last request, as bits: what is in flight may end, or it may not.
  enum Stop : std::int64_t { kStopAsked = 1, kTooManyFailed = 2, kBroken = 4 };
  void ask(std::int64_t stop) { counters_->fetch_or(kStop, stop); }
  [[nodiscard]] std::int64_t asked() const { return counters_->read(kStop); }

  // A sign of life of a replica, and whether there was any since the last look.
  void beat() { counters_->fetch_add(kBeats, 1); }
  bool heard();

  // A rank that has left its loop, and whether all have.
  void end() { counters_->fetch_add(kEnded, 1); }
  [[nodiscard]] bool all_ended() const { return counters_->read(kEnded) == ranks_; }

 private:
  enum { kNext, kAnswers, kFailures, kStop, kBeats, kEnded, kCount };
  std::int64_t ranks_;
  std::int64_t last_beats_ = 0;
  std::unique_ptr<parallel::SharedCounters> counters_;
};

// How many requests a group takes at once: a share of what is left that leaves as much to each other group twice over,
// so that no group holds the last requests of all.
//   left: requests that nobody has taken, as last seen   room: what this group can hold   result: 1 .. room
[[nodiscard]] std::int64_t chunk_to_take(std::int64_t left, int takers, std::int64_t room);

// How many requests may wait, being prepared, before a group's engine: nothing where `left` is few, since no other
// group can take them.
[[nodiscard]] std::int64_t look_ahead_of(std::int64_t left, int takers);

}  // namespace bathys::eval
