// SPDX-License-Identifier: Apache-2.0
#include "numerics/maths.hpp"

#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace numerics;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

double relative_error(double got, long double want) {
  return static_cast<double>(std::fabs((static_cast<long double>(got) - want) / want));
}

// Distance in float32 steps from the exact value, the step being that of the exact value's binade.
double ulps(float got, long double want) {
  int exponent = 0;
  std::frexp(want, &exponent);
  const long double step = std::ldexp(1.0L, std::max(exponent - 24, -149));
  return static_cast<double>(std::fabs(static_cast<long double>(got) - want) / step);
}

TEST(Maths, exp_double_is_within_its_stated_error) {
  std::mt19937_64 generator(1);
  std::uniform_real_distribution<double> wide(-708, 709);
  std::uniform_real_distribution<double> narrow(-2, 2);
  for (int n = 0; n < 200000; ++n) {
    const double x = n % 2 == 0 ? wide(generator) : narrow(generator);
    ASSERT_LT(relative_error(exp_double(x), std::exp(static_cast<long double>(x))), 1e-15) << x;
  }
  EXPECT_EQ(exp_double(0), 1.0);
  EXPECT_EQ(exp_double(-0.0), 1.0);
  EXPECT_EQ(exp_double(-kInf), 0.0);
  EXPECT_EQ(exp_double(kInf), kInf);
  EXPECT_EQ(exp_double(-800), 0.0);
  EXPECT_EQ(exp_double(710), kInf);
  EXPECT_NEAR(exp_double(-740) / static_cast<double>(std::exp(-740.0L)), 1.0, 0.1);  // subnormal: few bits
  EXPECT_TRUE(std::isnan(exp_double(kNan)));
}

TEST(Maths, log_double_is_within_its_stated_error) {
  std::mt19937_64 generator(2);
  std::uniform_real_distribution<double> exponent(-1070, 1020);
  std::uniform_real_distribution<double> near(0.5, 2);
  for (int n = 0; n < 200000; ++n) {
    const double x = n % 2 == 0 ? std::exp2(exponent(generator)) : near(generator);
    if (x == 1) continue;
    ASSERT_LT(relative_error(log_double(x), std::log(static_cast<long double>(x))), 1e-15) << x;
  }
  for (const double x : {1 + 0x1p-52, 1 - 0x1p-53, 1 + 1e-9, 1 - 1e-9, 1.4142135623730951, 0x1p-1074}) {
    EXPECT_LT(relative_error(log_double(x), std::log(static_cast<long double>(x))), 1e-15) << x;
  }
  EXPECT_EQ(log_double(1), 0.0);
  EXPECT_EQ(log_double(0), -kInf);
  EXPECT_EQ(log_double(kInf), kInf);
  EXPECT_TRUE(std::isnan(log_double(-1)));
  EXPECT_TRUE(std::isnan(log_double(kNan)));
}

TEST(Maths, log1p_double_keeps_small_arguments) {
  for (double x = 1e-300; x < 1e300; x *= 1.37) {
    ASSERT_LT(relative_error(log1p_double(x), std::log1p(static_cast<long double>(x))), 3e-15) << x;
  }
  EXPECT_EQ(log1p_double(0), 0.0);
  EXPECT_EQ(log1p_double(kInf), kInf);
}

TEST(Maths, sincos_is_within_its_stated_error_up_to_2_to_the_26) {
  std::mt19937_64 generator(3);
  std::uniform_real_distribution<double> exponent(-30, 26);
  for (int n = 0; n < 200000; ++n) {
    // Arguments are float32 products, as in rope tables.
    const double x = static_cast<double>(static_cast<float>(std::exp2(exponent(generator)))) * (n % 2 == 0 ? 1 : -1);
    double s = 0;
    double c = 0;
    sincos_double(x, s, c);
    ASSERT_NEAR(s, static_cast<double>(std::sin(static_cast<long double>(x))), 1e-15) << x;
    ASSERT_NEAR(c, static_cast<double>(std::cos(static_cast<long double>(x))), 1e-15) << x;
  }
  double s = 1;
  double c = 0;
  sincos_double(0, s, c);
  EXPECT_EQ(s, 0.0);
  EXPECT_EQ(c, 1.0);
}

TEST(Maths, exp_float_is_at_most_one_step_off_everywhere) {
  double worst = 0;
  for (std::uint32_t bits = 0; bits < 0x43000000U; bits += 1009) {  // up to 128, both signs
    for (const std::uint32_t sign : {0U, 0x80000000U}) {
      const float x = float_of_bits(bits | sign);
      if (x > 88.72F) continue;
      worst = std::max(worst, ulps(exp_float(x), std::exp(static_cast<long double>(x))));
    }
  }
  EXPECT_LE(worst, 1.0);
  EXPECT_EQ(exp_float(0), 1.0F);
  EXPECT_EQ(exp_float(-std::numeric_limits<float>::infinity()), 0.0F);
  EXPECT_EQ(exp_float(std::numeric_limits<float>::infinity()), std::numeric_limits<float>::infinity());
  EXPECT_EQ(exp_float(-1e30F), 0.0F);
  EXPECT_EQ(exp_float(89), std::numeric_limits<float>::infinity());
  EXPECT_GT(exp_float(-103), 0.0F);
  EXPECT_TRUE(std::isnan(exp_float(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Maths, softplus_neither_under_nor_overflows) {
  for (const float x : {-103.0F, -100.0F, -87.0F, -20.0F, -1.0F, 0.0F, 1.0F, 19.99F, 20.0F, 20.01F, 90.0F, 1000.0F}) {
    const long double want =
        static_cast<long double>(x) > 11000 ? x : std::log1p(std::exp(static_cast<long double>(x)));
    EXPECT_LE(ulps(softplus(x), want), 1.0) << x;
  }
  EXPECT_EQ(softplus(1000), 1000.0F);
  EXPECT_EQ(softplus(-200), 0.0F);
}

TEST(Maths, sigmoid_and_silu_hold_at_both_ends) {
  for (float x = -90; x <= 90; x += 0.37F) {
    const long double s = 1 / (1 + std::exp(-static_cast<long double>(x)));
    if (x > -87) {
      EXPECT_LE(ulps(sigmoid(x), s), 3.0) << x;  // exp, sum and division: at most half a step each beside exp's one
      EXPECT_LE(ulps(silu(x), s * static_cast<long double>(x)), 3.0) << x;
    }
  }
  EXPECT_EQ(sigmoid(-200), 0.0F);
  EXPECT_EQ(sigmoid(200), 1.0F);
  EXPECT_EQ(silu(-200), 0.0F);
  EXPECT_EQ(silu(200), 200.0F);
}

}  // namespace
}  // namespace bathys::test
