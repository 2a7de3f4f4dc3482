// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace bathys::engine {

// Sequences alive and bytes of their caches.
struct Room {
  std::int64_t sequences = 0, bytes = 0;

  friend Room operator+(Room a, const Room& b) { return {a.sequences + b.sequences, a.bytes + b.bytes}; }
  friend Room operator-(Room a, const Room& b) { return {a.sequences - b.sequences, a.bytes - b.bytes}; }
  Room& operator+=(const Room& b) { return *this = *this + b; }
  Room& operator-=(const Room& b) { return *this = *this - b; }
};

}  // namespace bathys::engine
