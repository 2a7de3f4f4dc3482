// SPDX-License-Identifier: Apache-2.0
// Fixed orders, fixed point and the counter-based generator: what has to be the same everywhere.
#include "numerics/fixed_point.hpp"
#include "numerics/philox.hpp"
#include "numerics/reduce.hpp"

#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace numerics;

std::vector<float> some_values(std::size_t n, unsigned seed) {
  std::mt19937 generator(seed);
  std::normal_distribution<float> normal;
  std::vector<float> v(n);
  for (auto& x : v) x = normal(generator) * std::exp2(normal(generator) * 8);
  return v;
}

// The order spelled out: lane l takes l, l + 16, ..; then halves are folded.
float plain_sum(std::vector<float> terms) {
  float lane[16] = {};
  for (std::size_t i = 0; i < terms.size(); ++i) lane[i % 16] += terms[i];
  const auto fold = [&](int half) {
    for (int i = 0; i < half; ++i) lane[i] = lane[i] + lane[i + half];
  };
  fold(8);
  fold(4);
  fold(2);
  fold(1);
  return lane[0];
}

TEST(Reduce, sums_and_dots_follow_the_one_order_at_every_length) {
  for (const std::size_t n : {0U, 1U, 15U, 16U, 17U, 31U, 32U, 100U, 1000U}) {
    const auto a = some_values(n, 1);
    const auto b = some_values(n, 2);
    const auto at = [](const std::vector<float>& v) {
      return [&v](std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
    };
    EXPECT_EQ(sum16(static_cast<std::int64_t>(n), at(a)), plain_sum(a)) << n;
    float lane[16] = {};
    for (std::size_t i = 0; i < n; ++i) lane[i % 16] = std::fma(a[i], b[i], lane[i % 16]);
    EXPECT_EQ(dot16(static_cast<std::int64_t>(n), at(a), at(b)), plain_sum({lane, lane + 16})) << n;
  }
}

TEST(FixedPoint, a_grain_is_rounded_once_and_sums_in_any_order) {
  EXPECT_EQ(to_fixed<36>(1.0F), std::int64_t{1} << 36);
  EXPECT_EQ(to_fixed<36>(-0x1p-36F), -1);
  EXPECT_EQ(to_fixed<36>(0x1p-37F), 0);    // half: to even
  EXPECT_EQ(to_fixed<36>(0x1.8p-36F), 2);  // one and a half: to even
  EXPECT_EQ(to_fixed<36>(0x1.fffffep25F), static_cast<std::int64_t>(0x1.fffffep61));
  EXPECT_EQ(from_fixed<36>(to_fixed<36>(0.3F)), double(0.3F));  // 24 bits from 2^-2 on: nothing lost
  std::vector<std::int64_t> grains;
  for (const float v : some_values(1000, 3)) grains.push_back(to_fixed<36>(grain_fits<36>(v, 1000) ? v : 0.0F));
  const std::int64_t forward = std::accumulate(grains.begin(), grains.end(), std::int64_t{0});
  EXPECT_EQ(std::accumulate(grains.rbegin(), grains.rend(), std::int64_t{0}), forward);
}

TEST(FixedPoint, the_fast_way_gives_the_same_integer_as_far_as_it_goes) {
  std::vector<float> values = {0, -0.0F, 0x1p-45F, -0x1p-45F, 0x1.8p-44F, 1, -1, 0x1.fffffep-1F, 0x1p-149F};
  for (const float v : some_values(10000, 4)) values.push_back(v);
  for (const float v : values) {
    for (const float scale : {1.0F, 0x1p-20F, 0x1p-42F, 0x1p3F}) {
      const float grain = v * scale;
      if (std::fabs(grain) > 0x1p7F) continue;
      EXPECT_EQ(to_fixed_small<44>(grain), to_fixed<44>(grain)) << grain;
      EXPECT_EQ(to_fixed_small<36>(grain * 0x1p8F), to_fixed<36>(grain * 0x1p8F)) << grain;
    }
  }
  for (const float limit : {0x1p15F, -0x1p15F}) EXPECT_EQ(to_fixed_small<36>(limit), to_fixed<36>(limit));
}

TEST(FixedPoint, a_grain_that_could_overflow_the_sum_does_not_fit) {
  EXPECT_TRUE(grain_fits<36>(std::nextafter(0x1p26F, 0.0F), 1));
  EXPECT_FALSE(grain_fits<36>(0x1p26F, 1));
  EXPECT_FALSE(grain_fits<36>(-0x1p23F, 8));
  EXPECT_TRUE(grain_fits<36>(-std::nextafter(0x1p23F, 0.0F), 8));
  EXPECT_FALSE(grain_fits<36>(std::numeric_limits<float>::quiet_NaN(), 1));
  EXPECT_FALSE(grain_fits<36>(-std::numeric_limits<float>::infinity(), 1));
}

void expect_words(const PhiloxBlock& got, std::uint32_t a, std::uint32_t b, std::uint32_t c, std::uint32_t d) {
  EXPECT_EQ(got.word[0], a);
  EXPECT_EQ(got.word[1], b);
  EXPECT_EQ(got.word[2], c);
  EXPECT_EQ(got.word[3], d);
}

// The known answers published with the generator (Random123).
TEST(Philox, gives_the_known_answers) {
  expect_words(philox4x32({{0, 0, 0, 0}}, 0, 0), 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8);
  expect_words(philox4x32({{~0U, ~0U, ~0U, ~0U}}, ~0U, ~0U), 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd);
  expect_words(philox4x32({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822, 0x299f31d0), 0xd16cfe09,
               0x94fdcceb, 0x5001e420, 0x24126ea1);
}

TEST(Philox, noise_is_keyed_by_request_position_repeat_and_id) {
  const std::uint64_t key = 0x0123456789abcdefULL;
  const std::int64_t position = (std::int64_t{5} << 32) + 7;
  const PhiloxBlock block = philox4x32({{7, 5, 3, 25}}, 0x89abcdefU, 0x01234567U);
  const PhiloxBlock got = noise_block(key, position, 3, 25);
  expect_words(got, block.word[0], block.word[1], block.word[2], block.word[3]);
}

TEST(Philox, gumbel_noise_has_its_range_mean_and_formula) {
  EXPECT_NEAR(gumbel(0), -std::log(33 * std::log(2.0)), 1e-12);
  EXPECT_NEAR(gumbel(~0U), 33 * std::log(2.0), 1e-7);
  EXPECT_NEAR(gumbel(0x80000000U), static_cast<double>(-std::log(-std::log((0x80000000L + 0.5L) * 0x1p-32L))), 1e-14);
  double sum = 0;
  const int n = 100000;
  for (int i = 0; i < n; ++i) sum += gumbel(noise_block(1, i, 0, 0).word[0]);
  EXPECT_NEAR(sum / n, 0.5772, 5 * 1.2825 / std::sqrt(double(n)));  // five standard errors
}

}  // namespace
}  // namespace bathys::test
