// SPDX-License-Identifier: Apache-2.0
#include "parallel/threads.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sstream>
#include <string_view>

#include <fmt/format.h>
#include <sched.h>

namespace bathys::parallel {
namespace {

constexpr int kKokkosThreads = 512;  // what the OpenMP back end of Kokkos has room for

constexpr int kMaxThreads = 1 << 16;

std::optional<int> positive_number(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > kMaxThreads) return std::nullopt;
  return value;
}

// The variable as a number; a value that is none is put among the warnings and counts as unset.
std::optional<int> read_number(const char* name, const Environment& environment, std::vector<std::string>& warnings) {
  const char* const text = environment(name);
  if (text == nullptr) return std::nullopt;
  std::string_view first = text;
  first = first.substr(0, first.find(','));  // OMP_NUM_THREADS may list one number per nesting level
  const std::optional<int> value = positive_number(first);
  if (!value) {
    warnings.push_back(
        fmt::format("{}=\"{}\" is no whole number from 1 to {} and is ignored", name, text, kMaxThreads));
  }
  return value;
}

std::optional<std::string> first_line(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  return line;
}

// Quota of one control group folder: version 2 has "max 100000" or "50000 100000" in cpu.max, version 1 two files, -1
// for none.
std::optional<double> quota_of(const std::string& folder) {
  double quota = -1;
  double period = 0;
  if (const auto line = first_line(folder + "/cpu.max")) {
    std::istringstream(*line) >> quota >> period;
  } else {
    const auto quota_line = first_line(folder + "/cpu.cfs_quota_us");
    const auto period_line = first_line(folder + "/cpu.cfs_period_us");
    if (quota_line && period_line) {
      std::istringstream(*quota_line) >> quota;
      std::istringstream(*period_line) >> period;
    }
  }
  if (!(quota > 0) || !(period > 0)) return std::nullopt;
  return quota / period;
}

}  // namespace

ThreadChoice choose_threads(int requested, const CpuLimits& limits, const Environment& environment) {
  ThreadChoice choice;
  const std::optional<int> omp = read_number("OMP_NUM_THREADS", environment, choice.warnings);
  const std::optional<int> slurm = read_number("SLURM_CPUS_PER_TASK", environment, choice.warnings);
  if (requested > 0 || omp) {
    choice.threads = requested > 0 ? requested : *omp;
    choice.source = requested > 0 ? "--threads" : "OMP_NUM_THREADS";
    // Kokkos's OpenMP back end has room for 512 and crashes beyond.
    require(choice.threads <= kKokkosThreads, ExitCode::usage,
            "{} asks for {} threads, at most {} can run; this rank may use {} CPUs", choice.source, choice.threads,
            kKokkosThreads, limits.mask_cpus);
    if (choice.threads > limits.mask_cpus) {
      choice.warnings.push_back(
          fmt::format("{} asks for {} threads, this rank may run on {} CPUs; expect it to be slower, not faster",
                      choice.source, choice.threads, limits.mask_cpus));
    }
    return choice;
  }
  const int sharers = std::max(limits.mask_sharers, 1);
  choice.threads = std::max(limits.mask_cpus / sharers, 1);
  choice.source = "affinity";
  if (slurm && *slurm < choice.threads) {
    choice.threads = *slurm;
    choice.source = "SLURM_CPUS_PER_TASK";
  }
  if (limits.cgroup_cpus) {
    const int quota =
        std::max(static_cast<int>(std::min(std::floor(*limits.cgroup_cpus / sharers), double{kMaxThreads})), 1);
    if (quota < choice.threads) {
      choice.threads = quota;
      choice.source = "cgroup quota";
    }
  }
  return choice;
}

std::vector<unsigned char> affinity_mask() {
  // A fixed set fails on machines of more CPUs than it holds; the kernel says so by EINVAL.
  for (int n_cpus = CPU_SETSIZE; n_cpus <= (1 << 20); n_cpus *= 2) {
    cpu_set_t* const set = CPU_ALLOC(static_cast<std::size_t>(n_cpus));
    if (set == nullptr) break;
    const std::size_t bytes = CPU_ALLOC_SIZE(static_cast<std::size_t>(n_cpus));
    CPU_ZERO_S(bytes, set);
    const bool known = sched_getaffinity(0, bytes, set) == 0;
    std::vector<unsigned char> mask(known ? bytes : 0);
    if (known) std::memcpy(mask.data(), set, bytes);
    CPU_FREE(set);
    if (known) return mask;
  }
  return {1};
}

void run_on_cpus(const std::vector<unsigned char>& mask) {
  cpu_set_t* const set = CPU_ALLOC(8 * mask.size());
  if (set == nullptr) return;
  const std::size_t bytes = CPU_ALLOC_SIZE(8 * mask.size());
  CPU_ZERO_S(bytes, set);
  std::memcpy(set, mask.data(), std::min(bytes, mask.size()));
  static_cast<void>(sched_setaffinity(0, bytes, set));
  CPU_FREE(set);
}

int count_cpus(const std::vector<unsigned char>& mask) {
  int count = 0;
  for (const unsigned char byte : mask) count += std::popcount(byte);
  return std::max(count, 1);
}

std::optional<double> cgroup_cpus(const std::string& root, const std::string& membership) {
  // Each line is "id:controllers:path"; a limit may stand at any folder from the process's own up to the root.
  std::optional<double> lowest;
  std::ifstream lines(membership);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t first = line.find(':');
    const std::size_t second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = fmt::format(",{},", line.substr(first + 1, second - first - 1));
    std::string mount = root;
    if (controllers != ",,") {
      if (controllers.find(",cpu,") == std::string::npos) continue;
      mount += "/cpu";
    }
    for (std::string path = line.substr(second + 1);;) {
      if (path == "/") path.clear();
      const std::optional<double> quota = quota_of(mount + path);
      if (quota && (!lowest || *quota < *lowest)) lowest = quota;
      if (path.empty()) break;
      path.resize(path.rfind('/') == std::string::npos ? 0 : path.rfind('/'));
    }
  }
  return lowest;
}

}  // namespace bathys::parallel
