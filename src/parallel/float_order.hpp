// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"

#include <cstdint>
#include <cstring>

namespace bathys::parallel {

inline constexpr std::int32_t kNanKey = 0x7fffffff;

// Floats as integers of the same order, so that a maximum over ranks is an integer maximum: the same bits for every
// layout and library.  -0 < +0; every NaN becomes one key above infinity, which float_of_key returns as the quiet NaN
// 0x7fffffff.
BATHYS_FUNCTION std::int32_t key_of_float(float value) {
  std::int32_t bits = 0;
  std::memcpy(&bits, &value, sizeof bits);
  if (value != value) return kNanKey;
  return bits >= 0 ? bits : bits ^ 0x7fffffff;
}

BATHYS_FUNCTION float float_of_key(std::int32_t key) {
  const std::int32_t bits = key >= 0 ? key : key ^ 0x7fffffff;
  float value = 0;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

}  // namespace bathys::parallel
