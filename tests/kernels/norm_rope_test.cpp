// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm_rope.hpp"

#include "core/error.hpp"
#include "kernels/view_support.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

TEST(RmsNorm, equals_the_golden_rows) {
  const GoldenFile file("ops.h5");
  const auto x = file.array("rmsnorm/text/x");
  const auto y = poisoned<bf16>(x.rows(), x.row_size());
  rms_norm(Exec(), to_mat<bf16>(x.rows(), x.row_size(), x.f), to_vec<bf16>(file.array("rmsnorm/text/w").f),
           static_cast<float>(file.attribute("rmsnorm/text", "eps")), y);
  expect_bf16_close(to_floats(y), file.array("rmsnorm/text/y"), "rmsnorm/text");
}

TEST(RmsNorm, agrees_with_a_double_loop_at_odd_widths) {
  for (const int width : {1, 15, 16, 17, 31, 96, 1000, 5120}) {
    const auto x = random_values(static_cast<std::size_t>(3 * width), 7, 2.0);
    const auto gain = random_values(static_cast<std::size_t>(width), 8);
    const auto y = poisoned<bf16>(3, width);
    rms_norm(Exec(), to_mat<bf16>(3, width, x), to_vec<bf16>(gain), 1e-20F, y);
    const auto got = to_floats(y);
    for (int i = 0; i < 3; ++i) {
      const auto want = reference::rms_norm(slice(x, i * width, (i + 1) * width), gain, 1e-20);
      for (int c = 0; c < width; ++c) {
        const double w = want[static_cast<std::size_t>(c)];
        // half a bf16 step of rounding, and what float32 adds
        EXPECT_NEAR(got[static_cast<std::size_t>(i * width + c)], w, std::fabs(w) * 0x1.02p-8)
            << width << " " << i << " " << c;
      }
    }
  }
}

TEST(RmsNorm, works_in_place_and_a_row_of_zeros_stays_zero) {
  std::vector<float> x = random_values(64, 3);
  std::fill(x.begin() + 32, x.end(), 0.0F);
  const auto fresh = poisoned<bf16>(2, 32);
  const auto same = to_mat<bf16>(2, 32, x);
  const auto gain = to_vec<bf16>(std::vector<float>(32, 1.0F));
  rms_norm(Exec(), to_mat<bf16>(2, 32, x), gain, 1e-20F, fresh);
  rms_norm(Exec(), same, gain, 1e-20F, same);
  EXPECT_EQ(to_host(same), to_host(fresh));
  for (const float v : slice(to_floats(same), 32, 64)) EXPECT_EQ(v, 0.0F);
}

RopeSettings settings_of(const GoldenFile& file, const std::string& group) {
  RopeSettings s;
  s.rope_dim = static_cast<int>(file.attribute(group, "rope_head_dim"));
  s.theta = file.attribute(group, "theta");
  s.original_seq_len = static_cast<std::int64_t>(file.attribute(group, "original_seq_len"));
  s.factor = file.attribute(group, "factor");
  s.beta_fast = file.attribute(group, "beta_fast");
  s.beta_slow = file.attribute(group, "beta_slow");
  return s;
}

class RopeGolden : public testing::TestWithParam<std::string> {};

TEST_P(RopeGolden, angles_and_rotations_equal_the_golden_ones) {
  const GoldenFile file("ops.h5");
  const std::string group = "rope/" + GetParam();
  const auto positions = file.array(group + "/positions");
  const auto freqs = rope_frequencies(settings_of(file, group));
  const auto pairs = static_cast<std::int64_t>(freqs.size());
  const Cube<float> table("test.table", static_cast<std::size_t>(positions.size()), freqs.size(), 2);
  rope_table(Exec(), to_vec<std::int64_t>(positions.i), to_vec<float>(freqs), table);
  const auto angles = to_host(table);
  const auto cosine = file.array(group + "/cos");
  const auto sine = file.array(group + "/sin");
  for (std::size_t n = 0; n < cosine.f.size(); ++n) {
    // The angle itself must be the same float32 number: at position 10^6 one step of it moves the sine by 0.06.
    EXPECT_NEAR(angles[2 * n], cosine.f[n], 1.2e-7) << n / static_cast<std::size_t>(pairs);
    EXPECT_NEAR(angles[2 * n + 1], sine.f[n], 1.2e-7) << n / static_cast<std::size_t>(pairs);
  }
  const auto x = file.array(group + "/x");
  const auto heads = static_cast<int>(x.shape[1]);
  const auto head_dim = static_cast<int>(x.shape[2]);
  for (const bool inverse : {false, true}) {
    const auto rotated = to_mat<bf16>(x.rows(), x.row_size(), x.f);
    rope_rotate(Exec(), rotated, heads, head_dim, {}, table, inverse);
    expect_bf16_close(to_floats(rotated), file.array(group + (inverse ? "/inverse" : "/forward")), group);
  }
}

INSTANTIATE_TEST_SUITE_P(All, RopeGolden,
                         testing::Values("window_small", "window_release", "compressed_small", "compressed_release",
                                         "compressed_e32"),
                         [](const auto& tested) { return tested.param; });

TEST(Rope, a_row_map_picks_the_table_row) {
  const auto freqs = rope_frequencies({.rope_dim = 16});
  const Cube<float> table("test.table", 4, 8, 2);
  rope_table(Exec(), to_vec<std::int64_t>(std::vector<std::int64_t>{5, 77, 1234567, 0}), to_vec<float>(freqs), table);
  const auto x = random_values(4 * 32, 5);
  const auto all = to_mat<bf16>(4, 32, x);
  rope_rotate(Exec(), all, 1, 32, {}, table, false);
  const auto some = to_mat<bf16>(2, 32, slice(x, 32, 96));
  rope_rotate(Exec(), some, 1, 32, to_vec<std::int32_t>(std::vector<int>{1, 2}), table, false);
  EXPECT_EQ(to_host(some), slice(to_host(all), 32, 96));
}

TEST(Rope, refuses_a_head_narrower_than_the_rotation) {
  const Cube<float> table("test.table", 1, 16, 2);
  EXPECT_THROW(rope_rotate(Exec(), to_mat<bf16>(1, 16, std::vector<float>(16)), 1, 16, {}, table, false), Error);
}

}  // namespace
}  // namespace bathys::test
