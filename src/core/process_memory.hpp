// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bathys {

// Memory of this process that lies in RAM: now, and at most since its start.  Zero where the kernel does not say.
struct ProcessMemory {
  std::int64_t resident_bytes = 0;
  std::int64_t peak_bytes = 0;
};
[[nodiscard]] ProcessMemory process_memory();

}  // namespace bathys
