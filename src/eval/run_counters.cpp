// SPDX-License-Identifier: Apache-2.0
#include "eval/run_counters.hpp"

#include <algorithm>

namespace bathys::eval {

RunCounters::RunCounters(parallel::Collectives& world, int takers)
    : ranks_(takers > 1 ? world.size() : 1),
      counters_(takers > 1 ? world.shared_counters(kCount)
                           : parallel::make_single_collectives()->shared_counters(kCount)) {}

std::int64_t RunCounters::add_answers(std::int64_t n, std::int64_t failed) {
  counters_->fetch_add(kAnswers, n);
  return failed == 0 ? 0 : counters_->fetch_add(kFailures, failed) + failed;
}

bool RunCounters::heard() {
  const std::int64_t beats = counters_->read(kBeats);
  const bool more = beats != last_beats_;
  last_beats_ = beats;
  return more;
}

std::int64_t look_ahead_of(std::int64_t left, int takers) {
  constexpr std::int64_t kMost = 256;
  return std::min(kMost, takers == 1 ? left : left / (4 * takers));
}

std::int64_t chunk_to_take(std::int64_t left, int takers, std::int64_t room) {
  const std::int64_t share = takers == 1 ? left : left / (2 * takers);
  return std::max<std::int64_t>(1, std::min(share, room));
}

}  // namespace bathys::eval
