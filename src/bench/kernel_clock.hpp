// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace bathys::bench {

// Seconds spent in Kokkos kernels and copies while it exists, seen through the callbacks that profiling tools use.  For
// host execution spaces, whose launches return when they are done.  One at a time, on one thread.
class KernelClock {
 public:
  KernelClock();
  ~KernelClock();
  KernelClock(const KernelClock&) = delete;
  KernelClock& operator=(const KernelClock&) = delete;

  void restart();
  [[nodiscard]] double seconds() const;
  // By label, longest first.
  [[nodiscard]] std::vector<std::pair<std::string, double>> by_label() const;
};

}  // namespace bathys::bench
