// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace bathys {

// Seconds since construction or the last restart, on the steady clock.
class Timer {
 public:
  Timer() : start_(Clock::now()) {}
  [[nodiscard]] double seconds() const { return std::chrono::duration<double>(Clock::now() - start_).count(); }
  double restart() {
    const double elapsed = seconds();
    start_ = Clock::now();
    return elapsed;
  }

 private:
  using Clock = std::chrono::steady_clock;
  Clock::time_point start_;
};

}  // namespace bathys
