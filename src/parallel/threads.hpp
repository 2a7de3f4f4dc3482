// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

namespace bathys::parallel {

using Environment = std::function<const char*(const char*)>;  // std::getenv or a test's double

// What the process may use, as the system sees it.
struct CpuLimits {
  int mask_cpus = 1;                    // in the affinity mask
  int mask_sharers = 1;                 // ranks of this node that have the same mask, this one included
  std::optional<double> cgroup_cpus{};  // CPU quota of the control group, none: unlimited
};

struct ThreadChoice {
  int threads = 1;
  std::string source;  // "--threads", "OMP_NUM_THREADS", "affinity", "SLURM_CPUS_PER_TASK", "cgroup quota"
  std::vector<std::string> warnings;
};

// The threads of one rank.  First the user's word: the option (`requested` > 0), then OMP_NUM_THREADS.  Else the
// smallest of: the CPUs of the affinity mask, divided by the ranks that share it; SLURM_CPUS_PER_TASK; the control
// group's quota, divided likewise and rounded down to at least 1.  Warns when the user asks for more than the mask
// holds, and when a variable is no number of threads (ignored).
[[nodiscard]] ThreadChoice choose_threads(int requested, const CpuLimits& limits, const Environment& environment);

[[nodiscard]] std::vector<unsigned char> affinity_mask();  // one bit per CPU
// Lets the calling thread run on these CPUs; where the system refuses, all stays as it is.
void run_on_cpus(const std::vector<unsigned char>& mask);
[[nodiscard]] int count_cpus(const std::vector<unsigned char>& mask);
// CPU quota from the process's control groups (versions 1 and 2) below `root`; none where there is no limit or no such
// file.
[[nodiscard]] std::optional<double> cgroup_cpus(const std::string& root = "/sys/fs/cgroup",
                                                const std::string& membership = "/proc/self/cgroup");

}  // namespace bathys::parallel
