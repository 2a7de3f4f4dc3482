// SPDX-License-Identifier: Apache-2.0
#include "kernels/hyper_connection.hpp"

#include "kernels/view_support.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

struct Mixes {
  std::vector<float> pre, post, comb;
};
Mixes run_mixes(const Mat<bf16>& h, const std::vector<float>& fn, const std::vector<float>& scale,
                const std::vector<float>& base, int copies, int iters, float hc_eps, float norm_eps) {
  const auto rows = static_cast<std::int64_t>(h.extent(0));
  const HyperConnectionWeights w{to_mat<float>((2 + copies) * copies, static_cast<std::int64_t>(h.extent(1)), fn),
                                 to_vec<float>(scale), to_vec<float>(base)};
  const HyperConnectionMix mix{poisoned<float>(rows, copies), poisoned<float>(rows, copies),
                               poisoned<float>(rows, copies * copies)};
  hc_mixes(Exec(), h, w, copies, iters, hc_eps, norm_eps, mix);
  return {to_floats(mix.pre), to_floats(mix.post), to_floats(mix.comb)};
}

class HcGolden : public testing::TestWithParam<std::string> {};

TEST_P(HcGolden, mixes_and_both_updates_equal_the_golden_ones) {
  const GoldenFile file("ops.h5");
  const std::string group = "hc/" + GetParam();
  const auto get = [&](const char* name) { return file.array(group + "/" + name); };
  const auto copies = static_cast<int>(file.attribute(group, "hc_mult"));
  const auto h = get("h");
  const std::int64_t width = h.row_size() / copies;
  const auto stream = to_mat<bf16>(h.rows(), h.row_size(), h.f);
  const Mixes got = run_mixes(
      stream, get("fn").f, get("scale").f, get("base").f, copies, static_cast<int>(file.attribute(group, "iters")),
      static_cast<float>(file.attribute(group, "hc_eps")), static_cast<float>(file.attribute(group, "norm_eps")));
  expect_f32_close(got.pre, get("pre"), group + "/pre");
  expect_f32_close(got.post, get("post"), group + "/post");
  expect_f32_close(got.comb, get("comb"), group + "/comb");

  const auto collapsed = poisoned<bf16>(h.rows(), width);
  hc_pre(Exec(), stream, to_mat<float>(h.rows(), copies, get("p").f), collapsed);
  expect_bf16_close(to_floats(collapsed), get("hc_pre"), group + "/hc_pre");

  hc_post(Exec(), to_mat<bf16>(h.rows(), width, get("y").f), to_mat<float>(h.rows(), copies, get("post").f),
          to_mat<float>(h.rows(), copies * copies, get("comb").f), stream);
  expect_bf16_close(to_floats(stream), get("hc_post"), group + "/hc_post");
}

INSTANTIATE_TEST_SUITE_P(All, HcGolden, testing::Values("m2", "m3_short", "m4"),
                         [](const auto& tested) { return tested.param; });

TEST(HyperConnection, sinkhorn_holds_at_extreme_mixes) {
  const GoldenFile file("ops.h5");
  const std::string group = "hc/sinkhorn_extreme";
  const auto m = file.array(group + "/m");
  const std::vector<float> scale(3, 1.0F);
  const std::vector<float> base(24, 0.0F);
  std::vector<float> pre(static_cast<std::size_t>(m.rows() * 4));
  std::vector<float> post(pre.size());
  std::vector<float> comb(pre.size() * 4);
  for (std::int64_t i = 0; i < m.rows(); ++i) {
    hc_mix_from_dots(m.f.data() + i * 24, scale.data(), base.data(), 4,
                     static_cast<int>(file.attribute(group, "iters")),
                     static_cast<float>(file.attribute(group, "hc_eps")), pre.data() + i * 4, post.data() + i * 4,
                     comb.data() + i * 16);
  }
  expect_f32_close(pre, file.array(group + "/pre"), "pre");
  expect_f32_close(post, file.array(group + "/post"), "post");
  expect_f32_close(comb, file.array(group + "/comb"), "comb");
}

// Row counts around the kernel's row block, widths that are no multiple of 16.
TEST(HyperConnection, mixes_agree_with_a_double_loop_and_do_not_depend_on_the_batch) {
  for (const int copies : {1, 2, 3, 4, 5}) {
    for (const int width : {7, 16, 33}) {
      const int rows = 18;
      const auto length = static_cast<std::size_t>(copies * width);
      const auto outputs = static_cast<std::size_t>((2 + copies) * copies);
      const auto h = random_values(static_cast<std::size_t>(rows) * length, 1);
      const auto fn = random_values(outputs * length, 2, 0.3, false);
      const std::vector<float> scale = {0.7F, 1.1F, 1.9F};
      const auto base = random_values(outputs, 3);
      const Mixes got = run_mixes(to_mat<bf16>(rows, copies * width, h), fn, scale, base, copies, 20, 1e-6F, 1e-20F);
      for (int i = 0; i < rows; ++i) {
        const auto x = slice(h, i * copies * width, (i + 1) * copies * width);
        const auto want = reference::hc_mix(reference::hc_dots(x, fn, 1e-20), {scale.begin(), scale.end()},
                                            {base.begin(), base.end()}, copies, 20, 1e-6);
        const Mixes alone = run_mixes(to_mat<bf16>(1, copies * width, x), fn, scale, base, copies, 20, 1e-6F, 1e-20F);
        for (int j = 0; j < copies; ++j) {
          const auto at = static_cast<std::size_t>(i * copies + j);
          const auto js = static_cast<std::size_t>(j);
          EXPECT_NEAR(got.pre[at], want.pre[js], 1e-5);
          EXPECT_NEAR(got.post[at], want.post[js], 1e-5);
          EXPECT_EQ(alone.pre[js], got.pre[at]);
          EXPECT_EQ(alone.post[js], got.post[at]);
          for (std::size_t k = 0; k < static_cast<std::size_t>(copies); ++k) {
            EXPECT_NEAR(got.comb[at * static_cast<std::size_t>(copies) + k], want.comb[js][k], 1e-5)
                << copies << " " << width;
            EXPECT_EQ(alone.comb[js * static_cast<std::size_t>(copies) + k],
                      got.comb[at * static_cast<std::size_t>(copies) + k]);
          }
        }
      }
    }
  }
}

// A transposed comb would pass with symmetric data: here copy 0 feeds copy 1 and nothing else moves.
TEST(HyperConnection, the_update_sums_over_the_first_index_of_comb) {
  const auto h = to_mat<bf16>(1, 4, std::vector<float>{3, 5, 70, 90});
  hc_post(Exec(), to_mat<bf16>(1, 2, std::vector<float>{1, 2}), to_mat<float>(1, 2, std::vector<float>{0, 10}),
          to_mat<float>(1, 4, std::vector<float>{0, 1, 0, 0}), h);
  EXPECT_EQ(to_floats(h), (std::vector<float>{0, 0, 13, 25}));
}

TEST(HyperConnection, updates_agree_with_a_double_loop_at_odd_widths) {
  for (const int width : {1, 17, 1024, 1025, 2080}) {
    const int copies = 3;
    const auto h = random_values(static_cast<std::size_t>(2 * copies * width), 4);
    const auto y = random_values(static_cast<std::size_t>(2 * width), 5);
    const auto post = random_values(6, 6, 1, false);
    const auto comb = random_values(18, 7, 1, false);
    const auto x = poisoned<bf16>(2, width);
    hc_pre(Exec(), to_mat<bf16>(2, copies * width, h), to_mat<float>(2, copies, post), x);
    const auto stream = to_mat<bf16>(2, copies * width, h);
    hc_post(Exec(), to_mat<bf16>(2, width, y), to_mat<float>(2, copies, post), to_mat<float>(2, 9, comb), stream);
    const auto pre_got = to_floats(x);
    const auto post_got = to_floats(stream);
    for (int i = 0; i < 2; ++i) {
      const auto at = [&](int j, int c) { return double(h[static_cast<std::size_t>((i * copies + j) * width + c)]); };
      for (int c = 0; c < width; ++c) {
        double sum = 0;
        for (int j = 0; j < copies; ++j) sum += double(post[static_cast<std::size_t>(i * copies + j)]) * at(j, c);
        EXPECT_NEAR(pre_got[static_cast<std::size_t>(i * width + c)], sum, std::fabs(sum) * 0x1p-8 + 1e-6);
        for (int k = 0; k < copies; ++k) {
          double v = double(post[static_cast<std::size_t>(i * copies + k)]) *
                     double(y[static_cast<std::size_t>(i * width + c)]);
          for (int j = 0; j < copies; ++j) v += double(comb[static_cast<std::size_t>(i * 9 + j * 3 + k)]) * at(j, c);
          EXPECT_NEAR(post_got[static_cast<std::size_t>((i * copies + k) * width + c)], v,
                      std::fabs(v) * 0x1p-8 + 1e-6);
        }
      }
    }
  }
}

}  // namespace
}  // namespace bathys::test
