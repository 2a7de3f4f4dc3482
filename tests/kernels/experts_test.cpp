// SPDX-License-Identifier: Apache-2.0
#include "kernels/experts.hpp"

#include "kernels/view_support.hpp"
#include "numerics/fixed_point.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <limits>
#include <map>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

struct Choice {
  std::vector<std::int32_t> chosen;
  std::vector<float> weight;
};
Choice run_gate(std::int64_t rows, std::int64_t experts, int k, const std::vector<float>& logits,
                const std::vector<float>& bias, const GateSettings& settings, const std::vector<float>& bias_image = {},
                const std::vector<std::int64_t>& image = {}) {
  const auto chosen = poisoned<std::int32_t>(rows, k);
  const auto weight = poisoned<float>(rows, k);
  Vec<const float> image_bias;
  if (!bias_image.empty()) image_bias = to_vec<float>(bias_image);
  gate(Exec(), to_mat<float>(rows, experts, logits), to_vec<float>(bias), image_bias, to_vec<std::uint8_t>(image), {},
       settings, chosen, weight);
  return {to_host(chosen), to_host(weight)};
}

GateFunction function_named(const std::string& name) {
  return name == "softmax"   ? GateFunction::softmax
         : name == "sigmoid" ? GateFunction::sigmoid
                             : GateFunction::sqrtsoftplus;
}

class GateGolden : public testing::TestWithParam<std::string> {};

TEST_P(GateGolden, chooses_the_golden_experts_with_the_golden_weights) {
  const GoldenFile file("ops.h5");
  const std::string group = "gate/" + GetParam();
  const auto x = file.array(group + "/x");
  const auto w = file.array(group + "/w");
  std::vector<float> logits;
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    for (std::int64_t e = 0; e < w.rows(); ++e) {
      float sum = 0;
      for (std::int64_t c = 0; c < w.row_size(); ++c) {
        sum = std::fma(x.f[static_cast<std::size_t>(i * w.row_size() + c)],
                       w.f[static_cast<std::size_t>(e * w.row_size() + c)], sum);
      }
      logits.push_back(sum);
    }
  }
  GateSettings settings;
  settings.function = function_named(file.text_attribute(group, "score_func"));
  settings.temperature = static_cast<float>(file.attribute(group, "gate_temp"));
  settings.normalize = file.attribute(group, "norm_topk_prob") != 0;
  settings.route_scale = static_cast<float>(file.attribute(group, "route_scale"));
  const auto k = static_cast<int>(file.attribute(group, "topk"));
  const Choice got = run_gate(x.rows(), w.rows(), k, logits, file.array(group + "/bias").f, settings,
                              file.array(group + "/bias_vl").f, file.array(group + "/image_mask").i);
  // The golden choice is in the order of the scores, ours in the order of the experts.
  const auto indices = file.array(group + "/indices");
  const auto weights = file.array(group + "/weights");
  for (std::int64_t i = 0; i < x.rows(); ++i) {
    std::map<std::int64_t, float> by_expert;
    for (std::int64_t c = i * k; c < (i + 1) * k; ++c)
      by_expert[indices.i[static_cast<std::size_t>(c)]] = weights.f[static_cast<std::size_t>(c)];
    GoldenArray row = weights;
    row.f.clear();
    std::vector<std::int32_t> experts;
    for (const auto& [e, v] : by_expert) {
      experts.push_back(static_cast<std::int32_t>(e));
      row.f.push_back(v);
    }
    EXPECT_EQ(slice(got.chosen, i * k, (i + 1) * k), experts) << group << " row " << i;
    // Row 2 of sqrtsoftplus rests on float32 subnormals of the reference, which have few bits; flushing them to zero
    // would be off by 100%.
    const bool subnormal = settings.function == GateFunction::sqrtsoftplus && i == 2;
    expect_f32_close(slice(got.weight, i * k, (i + 1) * k), row, group + " row " + std::to_string(i),
                     subnormal ? 0.03 : 1e-4);
  }
}

INSTANTIATE_TEST_SUITE_P(All, GateGolden,
                         testing::Values("softmax_top1", "softmax_top3", "softmax_top4", "sigmoid_top1", "sigmoid_top3",
                                         "sigmoid_top4", "sqrtsoftplus_top1", "sqrtsoftplus_top3", "sqrtsoftplus_top4"),
                         [](const auto& tested) { return tested.param; });

TEST(Gate, holds_at_extreme_logits) {
  const std::vector<float> logits = {-100, -20, 0, 20, 90};
  const std::vector<float> bias(5, 0.0F);
  GateSettings settings;
  settings.normalize = false;
  for (const GateFunction f : {GateFunction::softmax, GateFunction::sigmoid, GateFunction::sqrtsoftplus}) {
    settings.function = f;
    const Choice got = run_gate(1, 5, 5, logits, bias, settings);
    EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{0, 1, 2, 3, 4}));
    double total = 0;
    for (const float l : logits) total += std::exp(double(l) - 90);
    for (std::size_t e = 0; e < 5; ++e) {
      const double l = logits[e];
      const double want = f == GateFunction::softmax   ? std::exp(l - 90) / total
                          : f == GateFunction::sigmoid ? reference::sigmoid(l)
                                                       : std::sqrt(double(static_cast<float>(std::log1p(std::exp(l)))));
      // softplus(-100) is a float32 subnormal with five bits; sigmoid and softmax may lose what is below the normal
      // numbers.
      EXPECT_NEAR(got.weight[e], want, 1e-6 * want + 1.2e-38) << l;
    }
  }
}

TEST(Gate, breaks_ties_to_the_lower_expert_after_adding_the_bias) {
  GateSettings settings;
  settings.function = GateFunction::sigmoid;
  EXPECT_EQ(run_gate(1, 6, 3, std::vector<float>(6, 1.0F), std::vector<float>(6, 0.0F), settings).chosen,
            (std::vector<std::int32_t>{0, 1, 2}));
  const Choice got = run_gate(1, 6, 3, std::vector<float>(6, 1.0F), {0, 0, 0, 5, -1, 5}, settings);
  EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{0, 3, 5}));
  for (const float w : got.weight) EXPECT_NEAR(w, 1.0 / 3, 1e-6);  // the weights do not see the bias
}

TEST(Gate, never_leaves_a_choice_open_when_logits_are_no_numbers) {
  const Choice got = run_gate(2, 4, 2, {kNan, kNan, 1, kNan, kNan, kNan, kNan, kNan}, std::vector<float>(4, 0.0F), {});
  EXPECT_EQ(got.chosen, (std::vector<std::int32_t>{0, 2, 0, 1}));
  EXPECT_TRUE(std::isnan(got.weight[2]));
}

TEST(GroupByExpert, puts_each_pair_of_a_local_expert_in_row_order) {
  const std::vector<std::int32_t> chosen = {0, 3, 2, 3, 1, 3, 3, 5};  // [4, 2]
  const std::vector<float> weight = {10, 11, 12, 13, 14, 15, 16, 17};
  const Vec<std::int32_t> offsets("test.offsets", 4);
  const Vec<std::int32_t> row_of("test.row_of", 8);
  const Vec<float> weight_of("test.weight_of", 8);
  const auto assignment = poisoned<std::int32_t>(4, 2);
  group_by_expert(Exec(), to_mat<std::int32_t>(4, 2, chosen), to_mat<float>(4, 2, weight), 1, 3, offsets, row_of,
                  weight_of, assignment);
  EXPECT_EQ(to_host(offsets), (std::vector<std::int32_t>{0, 1, 2, 6}));
  EXPECT_EQ(slice(to_host(row_of), 0, 6), (std::vector<std::int32_t>{2, 1, 0, 1, 2, 3}));
  EXPECT_EQ(slice(to_host(weight_of), 0, 6), (std::vector<float>{14, 12, 11, 13, 15, 16}));
  EXPECT_EQ(to_host(assignment), (std::vector<std::int32_t>{-1, 2, 1, 3, 0, 4, 5, -1}));
}

TEST(GroupByExpert, takes_no_rows_at_all) {
  const Vec<std::int32_t> offsets("test.offsets", 3);
  Kokkos::deep_copy(offsets, 7);
  group_by_expert(Exec(), Mat<std::int32_t>("test.chosen", 0, 2), Mat<float>("test.weight", 0, 2), 0, 2, offsets, {},
                  {}, Mat<std::int32_t>("test.assignment", 0, 2));
  EXPECT_EQ(to_host(offsets), (std::vector<std::int32_t>{0, 0, 0}));
}

TEST(Swiglu, clamps_both_sides_and_agrees_with_a_double_loop) {
  for (const float limit : {0.0F, 0.5F, 2.0F}) {
    for (const int width : {1, 33, 1025}) {
      const auto n = static_cast<std::size_t>(2 * width);
      const auto g = random_values(n, 1, 3.0);
      const auto u = random_values(n, 2, 3.0);
      const std::vector<float> weight = {0.25F, 1.75F};
      for (const bool weighted : {false, true}) {
        const auto h = poisoned<bf16>(2, width);
        swiglu(Exec(), to_mat<bf16>(2, width, g), to_mat<bf16>(2, width, u),
               weighted ? to_vec<float>(weight) : Vec<float>(), limit, h);
        const auto got = to_floats(h);
        for (std::size_t i = 0; i < n; ++i) {
          const double x = limit > 0 ? std::min(g[i], limit) : g[i];
          const double y = limit > 0 ? std::clamp(u[i], -limit, limit) : u[i];
          const double want =
              (weighted ? weight[i / static_cast<std::size_t>(width)] : 1.0F) * x * reference::sigmoid(x) * y;
          EXPECT_NEAR(got[i], want, std::fabs(want) * 0x1.02p-8 + 1e-30) << limit << " " << g[i] << " " << u[i];
        }
      }
    }
  }
}

TEST(Swiglu, keeps_a_nan) {
  const auto h = poisoned<bf16>(1, 2);
  swiglu(Exec(), to_mat<bf16>(1, 2, std::vector<float>{kNan, 1}), to_mat<bf16>(1, 2, std::vector<float>{1, kNan}), {},
         0.5F, h);
  for (const float v : to_floats(h)) EXPECT_TRUE(std::isnan(v));
}

// The promise behind every layout: grains added in any grouping give the same 64 bits.
TEST(SumExperts, gives_the_same_bits_however_the_experts_are_dealt_out) {
  const int rows = 5;
  const int k = 3;
  const int width = 1030;
  auto y = random_values(static_cast<std::size_t>(rows * k * width), 6);
  y[3] = 29952.0F;  // leaves the fast path
  y[4] = 0x1p-40F;  // below the unit
  const auto grains = to_mat<bf16>(rows * k, width, y);
  std::vector<std::int32_t> all(static_cast<std::size_t>(rows * k));
  for (std::size_t a = 0; a < all.size(); ++a) all[a] = static_cast<std::int32_t>(all.size() - 1 - a);
  const auto run = [&](const std::vector<std::int32_t>& places) {
    const auto sums = poisoned<std::int64_t>(rows, width + 1);
    sum_experts(Exec(), grains, to_mat<std::int32_t>(rows, k, places), sums);
    return to_host(sums);
  };
  const auto whole = run(all);
  auto mine = all;
  auto others = all;
  for (std::size_t a = 0; a < all.size(); ++a) (a % 2 == 0 ? mine : others)[a] = -1;
  const auto a = run(mine);
  const auto b = run(others);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(a[i] + b[i], whole[i]) << i;
  // Against the definition.
  for (std::int64_t t = 0; t < rows; ++t) {
    for (std::int64_t c = 0; c < width; ++c) {
      std::int64_t want = 0;
      for (std::int64_t j = 0; j < k; ++j) {
        const auto place = all[static_cast<std::size_t>(t * k + j)];
        want += static_cast<std::int64_t>(std::rint(double(y[static_cast<std::size_t>(place * width + c)]) * 0x1p36));
      }
      ASSERT_EQ(whole[static_cast<std::size_t>(t * (width + 1) + c)], want);
    }
    EXPECT_EQ(whole[static_cast<std::size_t>(t * (width + 1) + width)], 0);
  }
}

TEST(SumExperts, counts_grains_that_are_too_large_or_no_numbers_for_their_row_alone) {
  const int width = 20;
  std::vector<float> y(4 * width, 1.0F);
  y[0] = kNan;
  y[1] = std::numeric_limits<float>::infinity();
  y[width] = 0x1p25F;                                  // 2^26 / 2 grains: the first that does not fit
  y[2 * width] = numerics::round_to_bf16(0x1.fcp24F);  // fits
  const auto sums = poisoned<std::int64_t>(2, width + 1);
  sum_experts(Exec(), to_mat<bf16>(4, width, y), to_mat<std::int32_t>(2, 2, std::vector<int>{0, 1, 2, 3}), sums);
  const auto got = to_host(sums);
  EXPECT_EQ(got[width], 3);
  EXPECT_EQ(got[2 * width + 1], 0);

  const auto out = poisoned<bf16>(2, width);
  const auto bad = to_vec<std::int32_t>(std::vector<int>{9, 9, 9, 9});
  finish_sum(Exec(), sums, {}, to_vec<std::int32_t>(std::vector<int>{2, 3}), 4, bad, out);
  EXPECT_EQ(to_host(bad), (std::vector<std::int32_t>{9, 9, 4, 9}));
  finish_sum(Exec(), sums, {}, to_vec<std::int32_t>(std::vector<int>{2, 3}), 6, bad, out);
  EXPECT_EQ(to_host(bad)[2], 4);  // the first bad layer stays
}

TEST(FinishSum, adds_the_shared_expert_once_in_float32) {
  const int width = 1027;
  const auto y = random_values(static_cast<std::size_t>(width), 1);
  const auto shared = random_values(static_cast<std::size_t>(width), 2);
  const auto sums = poisoned<std::int64_t>(1, width + 1);
  sum_experts(Exec(), to_mat<bf16>(1, width, y), to_mat<std::int32_t>(1, 1, std::vector<int>{0}), sums);
  const auto bad = to_vec<std::int32_t>(std::vector<int>{9});
  const auto with = poisoned<bf16>(1, width);
  finish_sum(Exec(), sums, to_mat<bf16>(1, width, shared), {}, 0, bad, with);
  const auto without = poisoned<bf16>(1, width);
  finish_sum(Exec(), sums, {}, {}, 0, bad, without);
  for (std::size_t c = 0; c < y.size(); ++c) {
    const auto exact = static_cast<float>(std::rint(double(y[c]) * 0x1p36) * 0x1p-36);
    EXPECT_EQ(to_floats(without)[c], numerics::round_to_bf16(exact));
    EXPECT_EQ(to_floats(with)[c], numerics::round_to_bf16(exact + shared[c]));
    if (c > 40) break;
  }
}

TEST(AddGrain, sums_output_groups_like_one_call_each) {
  const int width = 1050;
  const auto a = random_values(static_cast<std::size_t>(2 * width), 1, 1.0, false);
  const auto b = random_values(static_cast<std::size_t>(2 * width), 2, 1.0, false);
  const auto sums = poisoned<std::int64_t>(2, width + 1);
  add_grain(Exec(), to_mat<float>(2, width, a), 2, true, sums);
  add_grain(Exec(), to_mat<float>(2, width, b), 2, false, sums);
  const auto got = to_host(sums);
  for (std::size_t t = 0; t < 2; ++t) {
    for (std::size_t c = 0; c < width; ++c) {
      const auto i = t * width + c;
      const auto want = std::llrint(double(a[i]) * 0x1p36) + std::llrint(double(b[i]) * 0x1p36);
      ASSERT_EQ(got[t * (width + 1) + c], want);
    }
    EXPECT_EQ(got[t * (width + 1) + width], 0);
  }
  add_grain(Exec(), to_mat<float>(2, width, std::vector<float>(2 * width, 0x1p26F)), 2, false, sums);
  EXPECT_EQ(to_host(sums)[width], width);
}

}  // namespace
}  // namespace bathys::test
