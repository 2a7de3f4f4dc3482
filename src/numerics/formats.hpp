// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bits.hpp"

#include <cstdint>

// The small formats of weights, activations and caches (docs/numerics.md, "Formats").
namespace bathys::numerics {

// E8M0: a scale 2^(code-127).  Code 0 is 2^-127, a float32 subnormal; code 255 is NaN.
BATHYS_FUNCTION float e8m0_value(std::uint8_t code) {
  const std::uint32_t exponent = static_cast<std::uint32_t>(code) << 23;
  return float_of_bits(code == 0 ? 0x00400000U : code == 255 ? 0x7fc00000U : exponent);
}

// E4M3 (finite only): 1-4-3 bits, bias 7, largest 448, 0x7F and 0xFF are NaN.
BATHYS_FUNCTION float e4m3_value(std::uint8_t code) {
  const std::uint32_t magnitude = code & 0x7fU;
  const std::uint32_t sign = static_cast<std::uint32_t>(code & 0x80U) << 24;
  // A subnormal code m is m * 2^-9, exact in float32.
  const float small = static_cast<float>(magnitude) * 0x1p-9F;
  const std::uint32_t normal = (magnitude << 20) + (120U << 23);
  const std::uint32_t body = magnitude < 8 ? bits_of_float(small) : magnitude == 0x7f ? 0x7fc00000U : normal;
  return float_of_bits(body | sign);
}

// Nearest E4M3 code, ties to even; beyond 448 saturates, NaN gives 0x7F.
BATHYS_FUNCTION std::uint8_t e4m3_code(float value) {
  const std::uint32_t u = bits_of_float(value);
  const std::uint32_t sign = (u >> 24) & 0x80U;
  const std::uint32_t a = u & 0x7fffffffU;
  const float magnitude = float_of_bits(a);
  // Below 2^-6 the step is 2^-9: adding and taking away 2^23 units of 2^-9 rounds to nearest even.  Code 8 is the
  // smallest normal.
  const float units = magnitude * 512.0F;
  const std::uint32_t subnormal = bits_of_float(units + 0x1p23F) - bits_of_float(0x1p23F);
  const std::uint32_t normal = ((a + 0x7ffffU + ((a >> 20) & 1U)) >> 20) - (120U << 3);
  const std::uint32_t code = a > 0x7f800000U       ? 0x7fU
                             : magnitude >= 448.0F ? 0x7eU
                             : magnitude < 0x1p-6F ? subnormal
                                                   : normal;
  return static_cast<std::uint8_t>(sign | code);
}

// E2M1: 0, .5, 1, 1.5, 2, 3, 4, 6; code bit 3 is the sign.
BATHYS_FUNCTION float e2m1_value(std::uint8_t code) {
  const std::uint32_t m = code & 7U;
  // Twice the value: 0 1 2 3 4 6 8 12, packed as nibbles.
  const auto twice = static_cast<float>((0xc8643210U >> (4U * m)) & 0xfU);
  const float magnitude = 0.5F * twice;
  return float_of_bits(bits_of_float(magnitude) | (static_cast<std::uint32_t>(code & 8U) << 28));
}

// Nearest E2M1 code, ties to the even code; |value| above 6 saturates.  The sign of zero is kept.
BATHYS_FUNCTION std::uint8_t e2m1_code(float value) {
  const std::uint32_t u = bits_of_float(value);
  const float a = float_of_bits(u & 0x7fffffffU);
  const int code = (a > 0.25F) + (a >= 0.75F) + (a > 1.25F) + (a >= 1.75F) + (a > 2.5F) + (a >= 3.5F) + (a > 5.0F);
  return static_cast<std::uint8_t>(static_cast<std::uint32_t>(code) | ((u >> 28) & 8U));
}

}  // namespace bathys::numerics
