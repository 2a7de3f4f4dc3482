// SPDX-License-Identifier: Apache-2.0
#include "numerics/formats.hpp"

#include "numerics/bf16.hpp"
#include "support/golden.hpp"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace numerics;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

void expect_same(float got, float want, int code) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << code;
  } else {
    EXPECT_EQ(got, want) << code;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << code;
  }
}

TEST(Formats, every_code_has_the_golden_value) {
  const GoldenFile file("ops.h5");
  const auto e4m3 = file.array("formats/e4m3").f;
  const auto e8m0 = file.array("formats/e8m0").f;
  const auto e2m1 = file.array("formats/e2m1").f;
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    expect_same(e4m3_value(c), e4m3[c], code);
    expect_same(e8m0_value(c), e8m0[c], code);
    if (code < 16) expect_same(e2m1_value(c), e2m1[c], code);
  }
}

TEST(Formats, every_code_has_the_value_its_bits_define) {
  for (int code = 0; code < 256; ++code) {
    const auto c = static_cast<std::uint8_t>(code);
    const int exponent = code >> 3 & 15;
    const int mantissa = code & 7;
    double v = exponent == 0 ? std::ldexp(mantissa, -9) : std::ldexp(8 + mantissa, exponent - 10);
    if ((code & 0x7f) == 0x7f) v = kNan;
    expect_same(e4m3_value(c), static_cast<float>((code & 0x80) != 0 ? -v : v), code);
    expect_same(e8m0_value(c), code == 255 ? kNan : std::ldexp(1.0F, code - 127), code);
  }
  EXPECT_GT(e8m0_value(0), 0.0F);  // 2^-127 is subnormal, a shift would build 0
  const float magnitudes[] = {0, 0.5F, 1, 1.5F, 2, 3, 4, 6};
  for (int code = 0; code < 16; ++code) {
    expect_same(e2m1_value(static_cast<std::uint8_t>(code)),
                (code & 8) != 0 ? -magnitudes[code & 7] : magnitudes[code & 7], code);
  }
}

// Encoding against the definition: at each code's value, at each midpoint of neighbours (to the even code) and one
// float32 step beside it.
template <class Value, class Code>
void check_encoder(const Value& value, const Code& code, int largest) {
  for (int m = 0; m <= largest; ++m) {
    for (const int sign : {0, 1}) {
      const auto signed_code = [&](int c) {
        return static_cast<std::uint8_t>(sign != 0 ? c | (largest > 8 ? 0x80 : 8) : c);
      };
      const float s = sign != 0 ? -1.0F : 1.0F;
      const float v = value(static_cast<std::uint8_t>(m));
      EXPECT_EQ(code(s * v), signed_code(m)) << m;
      if (m == largest) break;
      const float next = value(static_cast<std::uint8_t>(m + 1));
      const float middle = 0.5F * (v + next);  // exact: neighbours differ by one step
      EXPECT_EQ(code(s * middle), signed_code(m % 2 == 0 ? m : m + 1)) << "tie above " << m;
      EXPECT_EQ(code(s * std::nextafter(middle, 0.0F)), signed_code(m)) << "below the tie above " << m;
      EXPECT_EQ(code(s * std::nextafter(middle, kInfinity)), signed_code(m + 1)) << "above the tie above " << m;
    }
  }
}

TEST(Formats, e4m3_rounds_to_nearest_even_and_saturates) {
  check_encoder(e4m3_value, e4m3_code, 0x7e);
  for (const float v : {449.0F, 464.0F, 1e10F, kInfinity}) {
    EXPECT_EQ(e4m3_code(v), 0x7e);
    EXPECT_EQ(e4m3_code(-v), 0xfe);
  }
  EXPECT_EQ(e4m3_code(kNan) & 0x7f, 0x7f);
  EXPECT_EQ(e4m3_code(1e-40F), 0);
  EXPECT_EQ(e4m3_code(-1e-40F), 0x80);
}

TEST(Formats, e2m1_rounds_ties_to_the_even_code_and_saturates) {
  check_encoder(e2m1_value, e2m1_code, 7);
  for (const auto& [v, code] : std::vector<std::pair<float, int>>{
           {0.25F, 0}, {0.75F, 2}, {1.25F, 2}, {1.75F, 4}, {2.5F, 4}, {3.5F, 6}, {5, 6}}) {
    EXPECT_EQ(e2m1_code(v), code) << v;
    EXPECT_EQ(e2m1_code(-v), code | 8) << v;
  }
  EXPECT_EQ(e2m1_code(1e30F), 7);
  EXPECT_EQ(e2m1_code(-kInfinity), 15);
}

TEST(Bf16, every_value_survives_and_every_midpoint_goes_to_the_even_neighbour) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float v = float_of_bits(bits << 16);
    if (std::isnan(v)) {
      EXPECT_TRUE(std::isnan(round_to_bf16(v)));
      continue;
    }
    ASSERT_EQ(bf16(v).bits, bits);
    if (std::isinf(v)) continue;
    const std::uint32_t middle = (bits << 16) + 0x8000U;
    ASSERT_EQ(bf16(float_of_bits(middle)).bits, bits % 2 == 0 ? bits : bits + 1) << bits;
    ASSERT_EQ(bf16(float_of_bits(middle - 1)).bits, bits);
    ASSERT_EQ(bf16(float_of_bits(middle + 1)).bits, bits + 1);
  }
  // NaN payloads that live in the lower half only must not round to infinity.
  EXPECT_TRUE(std::isnan(round_to_bf16(float_of_bits(0x7f800001U))));
  EXPECT_TRUE(std::isnan(round_to_bf16(float_of_bits(0xffffffffU))));
  EXPECT_EQ(round_to_bf16(std::numeric_limits<float>::max()), kInfinity);
}

}  // namespace
}  // namespace bathys::test
