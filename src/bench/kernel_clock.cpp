// SPDX-License-Identifier: Apache-2.0
#include "bench/kernel_clock.hpp"

#include "core/kokkos_compat.hpp"
#include "core/timer.hpp"

#include <algorithm>
#include <cstdint>
#include <map>

namespace bathys::bench {
namespace {

namespace tools = Kokkos::Tools::Experimental;

// Callbacks take no context, so what they count in is one for the process.
struct Counts {
  std::map<std::string, double> seconds;
  std::string label;
  Timer timer;
  int depth = 0;  // a copy may launch a kernel: the outer one counts

  void begin(const char* name) {
    if (depth++ > 0) return;
    label = name;
    timer.restart();
  }
  void end() {
    if (--depth == 0) seconds[label] += timer.seconds();
  }
};

Counts& counts() {
  static Counts all;
  return all;
}

void begin_kernel(const char* name, const std::uint32_t /*device*/, std::uint64_t* /*id*/) { counts().begin(name); }
void end_kernel(const std::uint64_t /*id*/) { counts().end(); }
void begin_copy(Kokkos::Profiling::SpaceHandle /*to*/, const char* /*to_label*/, const void* /*to_data*/,
                Kokkos::Profiling::SpaceHandle /*from*/, const char* /*from_label*/, const void* /*from_data*/,
                std::uint64_t /*bytes*/) {
  counts().begin("copies");
}
void end_copy() { counts().end(); }

}  // namespace

KernelClock::KernelClock() {
  restart();
  tools::set_begin_parallel_for_callback(begin_kernel);
  tools::set_end_parallel_for_callback(end_kernel);
  tools::set_begin_parallel_reduce_callback(begin_kernel);
  tools::set_end_parallel_reduce_callback(end_kernel);
  tools::set_begin_parallel_scan_callback(begin_kernel);
  tools::set_end_parallel_scan_callback(end_kernel);
  tools::set_begin_deep_copy_callback(begin_copy);
  tools::set_end_deep_copy_callback(end_copy);
}

KernelClock::~KernelClock() {
  tools::set_begin_parallel_for_callback(nullptr);
  tools::set_end_parallel_for_callback(nullptr);
  tools::set_begin_parallel_reduce_callback(nullptr);
  tools::set_end_parallel_reduce_callback(nullptr);
  tools::set_begin_parallel_scan_callback(nullptr);
  tools::set_end_parallel_scan_callback(nullptr);
  tools::set_begin_deep_copy_callback(nullptr);
  tools::set_end_deep_copy_callback(nullptr);
}

void KernelClock::restart() {
  counts().seconds.clear();
  counts().depth = 0;
}

double KernelClock::seconds() const {
  double total = 0;
  for (const auto& [label, seconds] : counts().seconds) total += seconds;
  return total;
}

std::vector<std::pair<std::string, double>> KernelClock::by_label() const {
  std::vector<std::pair<std::string, double>> out(counts().seconds.begin(), counts().seconds.end());
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.second > b.second; });
  return out;
}

}  // namespace bathys::bench
