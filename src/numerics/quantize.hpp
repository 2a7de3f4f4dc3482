// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bf16.hpp"
#include "numerics/formats.hpp"

#include <cstdint>

// Activation quantizers: one group of a row at a time (docs/numerics.md, "Quantizers").  `x(i)` yields the group's i-th
// value as float32.
namespace bathys::numerics {

// 2^ceil(log2(v)) as an E8M0 code, from the exponent bits (+1 when any mantissa bit is set), never by a log function.
BATHYS_FUNCTION std::uint8_t e8m0_code_above(float v) {
  const std::uint32_t u = bits_of_float(v);
  return static_cast<std::uint8_t>((u >> 23) + ((u & 0x7fffffU) != 0 ? 1U : 0U));
}

// 1 / scale, a normal number for the codes 0 to 253: multiplying by it is dividing by the scale, bit for bit.  Q8 makes
// the codes 105 (of its floor 1e-4) to 247 (of the largest bf16).
BATHYS_FUNCTION float e8m0_reciprocal(std::uint8_t code) { return float_of_bits((254U - code) << 23); }

// The largest magnitude of a group, at least `floor`; NaN where a value is NaN.
template <class X>
BATHYS_FUNCTION float group_max(X&& x, int n, float floor) {
  std::uint32_t best = bits_of_float(floor);  // magnitudes compare as integers; NaN is above infinity
  for (int i = 0; i < n; ++i) {
    const std::uint32_t a = bits_of_float(x(i)) & 0x7fffffffU;
    best = a > best ? a : best;
  }
  return float_of_bits(best);
}

// Q8: E4M3 codes and one E8M0 scale for up to 32 values.  A group that holds a NaN or an infinity gets scale code 255
// (NaN) and zero codes, so that everything computed from it is NaN on every path.
template <class X>
BATHYS_FUNCTION std::uint8_t quantize_q8(X&& x, int n, std::uint8_t* codes) {
  const float a = group_max(x, n, 1e-4F);
  if (!is_finite(a)) {
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return 255;
  }
  const std::uint8_t scale = e8m0_code_above(a * (1.0F / 448.0F));
  const float inverse = e8m0_reciprocal(scale);
  for (int i = 0; i < n; ++i) {
    codes[i] = e4m3_code(x(i) * inverse);  // saturates at 448 as the clamp does
  }
  return scale;
}

// Q4x32: E2M1 codes (one a byte here) and one E8M0 scale for up to 32 values; non-finite groups as in Q8.
template <class X>
BATHYS_FUNCTION std::uint8_t quantize_q4x32(X&& x, int n, std::uint8_t* codes) {
  const float a = group_max(x, n, 6.0F * 0x1p-126F);
  if (!is_finite(a)) {
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return 255;
  }
  const std::uint8_t scale = e8m0_code_above(a * (1.0F / 6.0F));
  const float s = e8m0_value(scale);
  for (int i = 0; i < n; ++i) {
    codes[i] = e2m1_code(x(i) / s);
  }
  return scale;
}

// Q4x16: E2M1 codes (one a byte here) and one E4M3 scale for up to 16 values: s = E4M3(a / 6), a true division,
// saturating at 448. Non-finite groups: scale 0x7F (NaN), zero codes.
template <class X>
BATHYS_FUNCTION std::uint8_t quantize_q4x16(X&& x, int n, std::uint8_t* codes) {
  const float a = group_max(x, n, 6.0F * 0x1p-9F);
  if (!is_finite(a)) {
    for (int i = 0; i < n; ++i) codes[i] = 0;
    return 0x7f;
  }
  const std::uint8_t scale = e4m3_code(a / 6.0F);
  const float s = e4m3_value(scale);
  for (int i = 0; i < n; ++i) {
    codes[i] = e2m1_code(x(i) / s);
  }
  return scale;
}

}  // namespace bathys::numerics
