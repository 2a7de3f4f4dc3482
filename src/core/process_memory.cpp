// SPDX-License-Identifier: Apache-2.0
#include "core/process_memory.hpp"

#include <fstream>
#include <string>

namespace bathys {

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

}  // namespace bathys
