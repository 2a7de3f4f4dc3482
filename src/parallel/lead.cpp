// SPDX-License-Identifier: Apache-2.0
#include "parallel/lead.hpp"

#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>

namespace bathys::parallel {
namespace {

// Between two words to the waiting ranks: often enough for the watchdog (kFilesFactor within its patience), seldom
// enough to cost nothing.
double interval_s(const Watchdog* watchdog) {
  return watchdog == nullptr || watchdog->limit_s() <= 0 ? 1.0 : std::min(1.0, watchdog->limit_s());
}

// Whether rank 0 is still at it.
bool still_working(Collectives& group, bool mine) {
  std::array<std::int64_t, 2> more_and_stop{mine ? 1 : 0, stop_requested() ? 1 : 0};
  group.all_reduce_host(more_and_stop, Reduce::max);
  if (more_and_stop[1] != 0) request_stop();
  return more_and_stop[0] != 0;
}

}  // namespace

void lead(Collectives& group, Watchdog* watchdog, std::string_view phase,
          const std::function<void(const Pulse&)>& work) {
  const auto progress = [&] {
    if (watchdog != nullptr) watchdog->progress(phase);
  };
  progress();
  std::optional<Cause> cause;
  if (group.rank() == 0) {
    Timer since;
    const Pulse pulse = [&] {
      if (since.seconds() < interval_s(watchdog)) return;
      since.restart();
      progress();
      still_working(group, true);
    };
    try {
      work(pulse);
    } catch (...) {
      cause = cause_of(std::current_exception());
    }
    still_working(group, false);
  } else {
    while (still_working(group, false)) progress();
  }
  agree_on(group, cause);
}

Pulse pulse_of(Watchdog* watchdog, std::string_view phase) {
  if (watchdog == nullptr) return {};
  return [watchdog, name = std::string(phase), since = Timer()]() mutable {
    if (since.seconds() < interval_s(watchdog)) return;
    since.restart();
    watchdog->progress(name);
  };
}

}  // namespace bathys::parallel
