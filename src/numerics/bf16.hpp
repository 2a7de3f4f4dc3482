// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bits.hpp"

#include <cstdint>

namespace bathys::numerics {

// A bfloat16 as stored: the upper half of a float32.
struct bf16 {  // NOLINT(readability-identifier-naming): the format is called so
  std::uint16_t bits = 0;

  bf16() = default;
  BATHYS_FUNCTION explicit bf16(float value);
  BATHYS_FUNCTION explicit operator float() const { return float_of_bits(static_cast<std::uint32_t>(bits) << 16); }
  friend bool operator==(bf16 a, bf16 b) { return a.bits == b.bits; }
};

// Rounds to nearest even; NaN stays NaN (its upper payload bits, made quiet), overflow gives infinity.
BATHYS_FUNCTION std::uint16_t bf16_bits(float value) {
  const std::uint32_t u = bits_of_float(value);
  const std::uint32_t rounded = (u + 0x7fffU + ((u >> 16) & 1U)) >> 16;
  const std::uint32_t quiet = (u >> 16) | 0x40U;
  return static_cast<std::uint16_t>((u & 0x7fffffffU) > 0x7f800000U ? quiet : rounded);
}

BATHYS_FUNCTION bf16::bf16(float value) : bits(bf16_bits(value)) {}

// The float nearest to `value` that a bf16 holds.
BATHYS_FUNCTION float round_to_bf16(float value) { return static_cast<float>(bf16(value)); }

}  // namespace bathys::numerics
