// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"

#include <bit>
#include <cstdint>
#include <cstring>

namespace bathys::numerics {

// The bit pattern of a float or double and back (memcpy compiles to a register move on host and device).
BATHYS_FUNCTION std::uint32_t bits_of_float(float v) {
  std::uint32_t u;
  memcpy(&u, &v, sizeof u);
  return u;
}
BATHYS_FUNCTION float float_of_bits(std::uint32_t u) {
  float v;
  memcpy(&v, &u, sizeof v);
  return v;
}
BATHYS_FUNCTION std::uint64_t bits_of_double(double v) {
  std::uint64_t u;
  memcpy(&u, &v, sizeof u);
  return u;
}
BATHYS_FUNCTION double double_of_bits(std::uint64_t u) {
  double v;
  memcpy(&v, &u, sizeof v);
  return v;
}

BATHYS_FUNCTION bool is_finite(float v) { return (bits_of_float(v) & 0x7f800000U) != 0x7f800000U; }
BATHYS_FUNCTION bool is_nan(float v) { return (bits_of_float(v) & 0x7fffffffU) > 0x7f800000U; }
BATHYS_FUNCTION float abs_float(float v) { return float_of_bits(bits_of_float(v) & 0x7fffffffU); }

}  // namespace bathys::numerics
