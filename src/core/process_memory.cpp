// SPDX-License-Identifier: Apache-2.0
#include "core/process_memory.hpp"

#include <algorithm>
#include <fstream>
#include <limits>
#include <optional>
#include <sstream>
#include <string>

namespace bathys {
namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

std::optional<std::int64_t> number_in(const std::string& path) {
  std::ifstream file(path);
  std::int64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;  // also "max"
}

// What the limit of one group leaves.  Page cache is given back on demand, so it does not count as used.
std::int64_t left_in(const std::string& folder, const char* limit_name, const char* used_name,
                     const std::string& cache_key) {
  const auto limit = number_in(folder + "/" + limit_name);
  const auto used = number_in(folder + "/" + used_name);
  if (!limit || !used) return kUnlimited;
  std::int64_t cache = 0;
  std::ifstream statistics(folder + "/memory.stat");
  std::string key;
  for (std::int64_t value = 0; statistics >> key >> value;) {
    if (key == cache_key) cache = value;
  }
  return std::max<std::int64_t>(0, *limit - (*used - std::min(cache, *used)));
}

}  // namespace

ProcessMemory process_memory() {
  ProcessMemory memory;
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    std::int64_t kib = 0;
    if (key == "VmRSS:" && status >> kib) memory.resident_bytes = kib * 1024;
    if (key == "VmHWM:" && status >> kib) memory.peak_bytes = kib * 1024;
    status.ignore(1 << 16, '\n');
  }
  return memory;
}

std::int64_t available_memory(const std::string& root) {
  std::int64_t available = kUnlimited;
  std::ifstream info(root + "/proc/meminfo");
  std::string line;
  while (std::getline(info, line)) {
    std::istringstream words(line);
    std::string key;
    std::int64_t kib = 0;
    if (words >> key >> kib && key == "MemAvailable:") available = kib * 1024;
  }
  // "hierarchy:controllers:path", of version 1 where the controller is named, of version 2 where none is.
  std::ifstream groups(root + "/proc/self/cgroup");
  while (std::getline(groups, line)) {
    const std::size_t first = line.find(':'), second = line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool version_2 = controllers.empty();
    if (!version_2 && controllers != "memory") continue;
    std::string path = line.substr(second + 1);
    while (true) {  // a limit of a group above holds too
      const std::string folder = root + "/sys/fs/cgroup" + (version_2 ? "" : "/memory") + path;
      available = std::min(available, version_2 ? left_in(folder, "memory.max", "memory.current", "inactive_file")
                                                : left_in(folder, "memory.limit_in_bytes", "memory.usage_in_bytes",
                                                          "total_inactive_file"));
      const std::size_t slash = path.find_last_of('/');
      if (path.empty() || slash == std::string::npos) break;
      path.resize(slash);
    }
  }
  return available == kUnlimited ? 0 : std::max<std::int64_t>(available, 1);
}

}  // namespace bathys
