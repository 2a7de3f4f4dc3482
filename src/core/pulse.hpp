// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>

namespace bathys {

// Called again and again by work that may take long, as a sign that it moves; cheap enough for every line of a file.
// Empty where nobody listens.
using Pulse = std::function<void()>;

inline void beat(const Pulse& pulse) {
  if (pulse) pulse();
}

}  // namespace bathys
