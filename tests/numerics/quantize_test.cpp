// SPDX-License-Identifier: Apache-2.0
#include "numerics/quantize.hpp"

#include "support/golden.hpp"

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace numerics;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

enum class Kind { q8, q4x32, q4x16 };

struct Group {
  int scale = 0;
  std::vector<std::uint8_t> codes;
  std::vector<float> values;  // q * s
};
Group quantize(Kind kind, const std::vector<float>& x) {
  Group g;
  const auto n = static_cast<int>(x.size());
  g.codes.resize(x.size());
  const auto at = [&](int i) { return x[static_cast<std::size_t>(i)]; };
  float s = 0;
  switch (kind) {
    case Kind::q8:
      s = e8m0_value(static_cast<std::uint8_t>(g.scale = quantize_q8(at, n, g.codes.data())));
      break;
    case Kind::q4x32:
      s = e8m0_value(static_cast<std::uint8_t>(g.scale = quantize_q4x32(at, n, g.codes.data())));
      break;
    case Kind::q4x16:
      s = e4m3_value(static_cast<std::uint8_t>(g.scale = quantize_q4x16(at, n, g.codes.data())));
      break;
  }
  for (const auto c : g.codes) g.values.push_back((kind == Kind::q8 ? e4m3_value(c) : e2m1_value(c)) * s);
  return g;
}

void check_golden(Kind kind, const std::string& group, bool packed) {
  const GoldenFile file("ops.h5");
  const auto x = file.array(group + "/x");
  const auto codes = file.array(group + (packed ? "/codes_packed" : "/codes")).i;
  const auto scales = file.array(group + "/scales").i;
  const auto inplace = file.array(group + "/inplace").f;
  const auto size = static_cast<std::size_t>(file.attribute(group, "group"));
  for (std::size_t first = 0; first < x.f.size(); first += size) {
    const auto begin = x.f.begin() + static_cast<std::ptrdiff_t>(first);
    const Group got = quantize(kind, std::vector<float>(begin, begin + static_cast<std::ptrdiff_t>(size)));
    EXPECT_EQ(got.scale, scales[first / size]) << group << " group " << first / size;
    for (std::size_t i = 0; i < size; ++i) {
      const auto at = first + i;
      const auto want = packed ? codes[at / 2] >> (at % 2 * 4) & 15 : codes[at];
      EXPECT_EQ(got.codes[i], want) << group << "[" << at << "] of " << x.f[at];
      EXPECT_EQ(round_to_bf16(got.values[i]), inplace[at]) << group << "[" << at << "]";
      EXPECT_EQ(round_to_bf16(got.values[i]), got.values[i]) << "a cache that holds codes must lose nothing";
    }
  }
}

TEST(Quantize, q8_equals_the_golden_codes_scales_and_values) { check_golden(Kind::q8, "quant/q8", false); }
TEST(Quantize, q4x32_equals_the_golden_codes_scales_and_values) { check_golden(Kind::q4x32, "quant/q4x32", true); }
TEST(Quantize, q4x16_equals_the_golden_codes_scales_and_values) { check_golden(Kind::q4x16, "quant/q4x16", true); }

// The scale by its definition, in exact arithmetic on the float32 product, at powers of two and one step beside them.
TEST(Quantize, power_of_two_scales_come_from_the_exponent_bits) {
  for (int e = -120; e <= 127; ++e) {
    const float power = std::ldexp(1.0F, e);
    for (const float v :
         {std::nextafter(power, 0.0F), power, std::nextafter(power, std::numeric_limits<float>::infinity())}) {
      EXPECT_EQ(e8m0_code_above(v) - 127, v <= power ? e : e + 1) << e;
    }
  }
}

TEST(Quantize, no_group_overflows_its_code_and_the_error_is_half_a_step) {
  std::mt19937 generator(5);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> magnitude(-12, 12);
  for (int trial = 0; trial < 2000; ++trial) {
    for (const Kind kind : {Kind::q8, Kind::q4x32, Kind::q4x16}) {
      std::vector<float> x(kind == Kind::q4x16 ? 16 : 32);
      const double size = std::exp2(kind == Kind::q4x16 ? magnitude(generator) / 2 : magnitude(generator));
      for (auto& v : x) v = round_to_bf16(static_cast<float>(normal(generator) * size));
      const Group got = quantize(kind, x);
      float largest = 0;
      for (const float v : x) largest = std::max(largest, std::fabs(v));
      for (std::size_t i = 0; i < x.size(); ++i) {
        // E2M1 is one bit of mantissa: half a step is at most a quarter of the value or an eighth of the largest; E4M3
        // has three.
        const double step = kind == Kind::q8 ? std::max(std::fabs(x[i]) / 16, largest * 0x1p-16F)
                                             : std::max(std::fabs(x[i]) / 4, largest / 8);
        EXPECT_LE(std::fabs(got.values[i] - x[i]), 1.07 * step) << x[i] << " in a group up to " << largest;
      }
    }
  }
}

TEST(Quantize, groups_of_zeros_and_tiny_values_keep_a_legal_scale) {
  for (const Kind kind : {Kind::q8, Kind::q4x32, Kind::q4x16}) {
    const std::size_t n = kind == Kind::q4x16 ? 16 : 32;
    for (const float tiny : {0.0F, -0.0F, 1e-44F, 1e-39F}) {
      const Group got = quantize(kind, std::vector<float>(n, tiny));
      for (const float v : got.values) EXPECT_LE(std::fabs(v), 2e-38F);
      EXPECT_GT(got.scale, 0);
    }
  }
}

TEST(Quantize, a_group_with_a_nan_or_an_infinity_is_nan_as_a_whole) {
  for (const Kind kind : {Kind::q8, Kind::q4x32, Kind::q4x16}) {
    for (const float bad :
         {kNan, -kNan, std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> x(kind == Kind::q4x16 ? 16 : 32, 1.0F);
      x[5] = bad;
      for (const float v : quantize(kind, x).values) EXPECT_TRUE(std::isnan(v));
    }
  }
}

TEST(Quantize, the_largest_bf16_saturates_q4x16_and_keeps_a_legal_q8_code) {
  const float largest = float_of_bits(0x7f7f0000U);
  const Group small = quantize(Kind::q4x16, std::vector<float>(16, largest));
  EXPECT_EQ(small.values[0], 6.0F * 448.0F);
  // largest / 448 lies above 2^119, so the scale is 2^120 and the code that of 255 rounded to 256.
  const Group wide = quantize(Kind::q8, std::vector<float>(32, largest));
  EXPECT_EQ(wide.scale, 127 + 120);
  EXPECT_EQ(e4m3_value(wide.codes[0]), 256.0F);
}

}  // namespace
}  // namespace bathys::test
