// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace bathys {

// Memory of this process that lies in RAM: now, and at most since its start.  Zero where the kernel does not say.
struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
};
[[nodiscard]] ProcessMemory process_memory();

// Bytes that the processes of this one's control group may still take together before the kernel ends one: the node's
// free memory, or what a limit of the group or of one above it (a Slurm job's --mem) leaves.  At least 1; 0 where the
// kernel does not say.   root: where the file system begins, for tests
[[nodiscard]] std::int64_t available_memory(const std::string& root = "");

}  // namespace bathys
