// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/linear_job.hpp"
#include "kernels/linear_portable.hpp"
#include "linear_support.hpp"

#include <limits>
#include <numeric>
#include <string>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using kernels::Activation;
using kernels::PackedLinear;

const std::vector<WeightKind> kKinds = {WeightKind::fp4, WeightKind::fp8, WeightKind::bf16, WeightKind::f32};

std::string name_of(WeightKind kind) {
  return kind == WeightKind::fp4 ? "fp4" : kind == WeightKind::fp8 ? "fp8" : kind == WeightKind::bf16 ? "bf16" : "f32";
}

// Bits of one number; every NaN counts as the same.
std::uint32_t bits(float v) { return std::isnan(v) ? 0x7fc00000U : numerics::bits_of_float(v); }

struct Problem {
  Weight weight;
  std::vector<std::vector<float>> x;
  bool q8 = false;

  [[nodiscard]] std::vector<std::uint32_t> expected() const {
    std::vector<std::uint32_t> out;
    for (const auto& row : x) {
      const reference::Row prepared = q8 ? reference::q8_row(row) : reference::plain_row(row);
      for (std::int64_t n = 0; n < weight.n; ++n) out.push_back(bits(reference::linear(weight, n, prepared)));
    }
    return out;
  }
};

Activation prepared(const Problem& p) {
  const auto rows = static_cast<std::int64_t>(p.x.size());
  Activation a(rows + 2, p.weight.k + 40, p.q8);
  const Mat<bf16> x = to_bf16_view(p.x, 3);
  if (p.q8) {
    prepare_q8(Exec(), x, p.weight.k, a);
  } else {
    prepare_plain(Exec(), Mat<const bf16>(x), p.weight.k, a);
  }
  return a;
}

constexpr float kUntouched = -12345.0F;

// What a body wrote, as float bits; columns beyond n must stay as they were.
template <class Body>
std::vector<std::uint32_t> output_of(const Problem& p, Body&& body) {
  const std::size_t rows = p.x.size();
  const auto n = static_cast<std::size_t>(p.weight.n);
  Mat<float> y("y", rows, n + 5);
  Kokkos::deep_copy(y, kUntouched);
  body(y);
  std::vector<std::uint32_t> out;
  for (std::size_t m = 0; m < rows; ++m) {
    for (std::size_t j = 0; j < n + 5; ++j) {
      if (j < n) {
        out.push_back(bits(y(m, j)));
      } else {
        EXPECT_EQ(y(m, j), kUntouched) << "row " << m << " column " << j;
      }
    }
  }
  return out;
}

// Every body, instruction set and division of the work gives the expected bits.
void expect_all_bodies(const Problem& p, const std::string& what) {
  SCOPED_TRACE(what);
  const auto want = p.expected();
  const PackedLinear w = packed_linear({p.weight});
  const Activation a = prepared(p);
  EXPECT_EQ(output_of(p, [&](const Mat<float>& y) { linear_portable(Exec(), w, 0, a, y); }), want) << "portable";
  for (const std::string target : {"AVX2", "AVX3", "AVX3_DL"}) {
    if (!kernels::limit_linear_simd(target)) continue;
    EXPECT_EQ(output_of(p, [&](const Mat<float>& y) { linear(Exec(), w, 0, a, y); }), want) << target;
    kernels::limit_linear_simd("");
  }
  for (const int shares : {1, 2, 3, 7}) {
    const auto got = output_of(p, [&](const Mat<float>& y) {
      kernels::LinearJob job = make_linear_job(w, a);
      job.y_f32 = y.data();
      job.y_stride = static_cast<std::int64_t>(y.stride(0));
      kernels::LinearSegments segments;
      segments.rows = a.rows();
      for (int s = shares - 1; s >= 0; --s) run_share(job, segments, s, shares);
    });
    EXPECT_EQ(got, want) << shares << " shares";
  }
}

Problem random_problem(WeightKind kind, bool q8, std::int64_t n, std::int64_t k, std::int64_t rows,
                       std::mt19937& random, const WeightOptions& options = {}, int sigma_steps = 2) {
  return {random_weight(kind, n, k, random, options), random_rows(rows, k, random, sigma_steps), q8};
}

// The five pairs of weights and inputs that exist.
const std::vector<std::pair<WeightKind, bool>> kPairs = {{WeightKind::fp4, true},
                                                         {WeightKind::fp8, true},
                                                         {WeightKind::fp8, false},
                                                         {WeightKind::bf16, false},
                                                         {WeightKind::f32, false}};

class LinearPairs : public ::testing::TestWithParam<std::pair<WeightKind, bool>> {};
INSTANTIATE_TEST_SUITE_P(All, LinearPairs, ::testing::ValuesIn(kPairs), [](const auto& pair) {
  return name_of(pair.param.first) + (pair.param.second ? "_q8" : "_plain");
});

TEST_P(LinearPairs, EqualThePlainLoopAtEveryShape) {
  const auto [kind, q8] = GetParam();
  std::mt19937 random(7);
  for (const std::int64_t n : {1, 15, 16, 17, 70}) {
    for (const std::int64_t k : {1, 32, 33, 160, 544}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 6, 7, 8, 9, 17}) {
        expect_all_bodies(random_problem(kind, q8, n, k, rows, random),
                          "n " + std::to_string(n) + " k " + std::to_string(k) + " rows " + std::to_string(rows));
      }
    }
  }
}

TEST_P(LinearPairs, EqualThePlainLoopWithManyRows) {
  const auto [kind, q8] = GetParam();
  std::mt19937 random(8);
  for (const std::int64_t rows : {64, 265, 600})
    expect_all_bodies(random_problem(kind, q8, 37, 288, rows, random), std::to_string(rows));
}

TEST_P(LinearPairs, EqualThePlainLoopAtTheEndsOfTheRange) {
  const auto [kind, q8] = GetParam();
  std::mt19937 random(9);
  WeightOptions options;
  options.lowest_scale = kLowestScale;
  options.highest_scale = kHighestScale;
  options.zero_blocks = 0.3F;
  for (const std::int64_t rows : {1, 3, 9}) {
    expect_all_bodies(random_problem(kind, q8, 33, 200, rows, random, options, 20),
                      "wide scales, " + std::to_string(rows) + " rows");
  }
  // The largest numbers: inputs just below the end of bf16, and inputs far below the quantizer's floor.
  Problem p = random_problem(kind, q8, 16, 96, 7, random, options, 0);
  for (std::size_t j = 0; j < 96; ++j) {
    p.x[1][j] = std::ldexp(p.x[1][j], 124);
    p.x[3][j] = std::ldexp(p.x[3][j], -120);
    p.x[5][j] = 0.0F;
    p.x[6][j] = -0.0F;
  }
  expect_all_bodies(p, "largest and smallest inputs");
}

TEST_P(LinearPairs, AnInputThatIsNotFiniteMakesItsRowNaNAndNoOther) {
  const auto [kind, q8] = GetParam();
  std::mt19937 random(10);
  for (const std::int64_t rows : {1, 2, 8}) {
    Problem clean = random_problem(kind, q8, 20, 100, rows, random);
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Problem p = clean;
      const auto last = static_cast<std::size_t>(rows - 1);
      p.x[last][98] = bad;
      expect_all_bodies(p, "not finite");
      const auto want = p.expected();
      const auto before = clean.expected();
      for (std::size_t i = 0; i < want.size(); ++i) {
        if (i / 20 != last) {
          EXPECT_EQ(want[i], before[i]);
        } else if (q8 || std::isnan(bad)) {
          EXPECT_EQ(want[i], bits(NAN));
        }
      }
    }
  }
}

TEST_P(LinearPairs, TheBf16OutputIsTheRoundedFloatOutput) {
  const auto [kind, q8] = GetParam();
  std::mt19937 random(11);
  const Problem p = random_problem(kind, q8, 45, 96, 5, random);
  const PackedLinear w = packed_linear({p.weight});
  const Activation a = prepared(p);
  const auto want = p.expected();
  Mat<bf16> y("y", 6, 50), portable("portable", 6, 50);
  linear(Exec(), w, 0, a, y);
  linear_portable(Exec(), w, 0, a, portable);
  for (std::size_t i = 0; i < want.size(); ++i) {
    EXPECT_EQ(y(i / 45, i % 45).bits, numerics::bf16_bits(numerics::float_of_bits(want[i])));
    EXPECT_EQ(y(i / 45, i % 45).bits, portable(i / 45, i % 45).bits);
  }
  EXPECT_EQ(y(5, 0).bits, 0) << "a row beyond the activation's";
}

TEST(Linear, Float32InputsAreTakenAsTheyAre) {
  std::mt19937 random(12);
  Problem p = random_problem(WeightKind::f32, false, 19, 70, 9, random);
  std::normal_distribution<float> normal;
  Mat<float> x("x", 9, 70);
  for (std::size_t m = 0; m < 9; ++m) {
    for (std::size_t j = 0; j < 70; ++j) x(m, j) = p.x[m][j] = normal(random);
  }
  Activation a(9, 70, false);
  prepare_plain(Exec(), Mat<const float>(x), 70, a);
  const PackedLinear w = packed_linear({p.weight});
  EXPECT_EQ(output_of(p, [&](const Mat<float>& y) { linear(Exec(), w, 0, a, y); }), p.expected());
}

TEST(Linear, EveryCodePairOfFp4AndQ8IsExact) {
  // Row n holds weight code n in every place; input row m holds E4M3 code m at one place: all 16 x 254 products, in
  // every body.
  Problem p;
  p.weight = {WeightKind::fp4, 16, 64, std::vector<std::uint8_t>(16 * 32), std::vector<std::uint8_t>(32, 127)};
  for (std::size_t n = 0; n < 16; ++n)
    std::fill_n(p.weight.codes.begin() + std::ptrdiff_t(n * 32), 32, static_cast<std::uint8_t>(n * 17));
  p.q8 = true;
  for (int code = 0; code < 256; ++code) {
    if ((code & 0x7f) == 0x7f) continue;
    std::vector<float> row(64, 0.0F);
    row[0] = 448.0F;  // holds the scale at 1
    row[32] = 448.0F;
    row[static_cast<std::size_t>(1 + code % 31)] = numerics::e4m3_value(static_cast<std::uint8_t>(code));
    row[static_cast<std::size_t>(33 + code % 29)] = numerics::e4m3_value(static_cast<std::uint8_t>(code ^ 0x80));
    p.x.push_back(row);
  }
  expect_all_bodies(p, "all rows at once");
  for (const auto& row : std::vector<std::vector<float>>(p.x)) expect_all_bodies({p.weight, {row}, true}, "row by row");
}

TEST(Linear, TheFullBlockOfLargestProductsFits) {
  Problem p = {
      {WeightKind::fp4, 16, 32, std::vector<std::uint8_t>(256, 0x77), std::vector<std::uint8_t>(16, 127)}, {}, true};
  p.x.assign(3, std::vector<float>(32, 448.0F));
  p.x.push_back(std::vector<float>(32, -448.0F));
  expect_all_bodies(p, "four rows");
  for (const auto& row : std::vector<std::vector<float>>(p.x)) expect_all_bodies({p.weight, {row}, true}, "one row");
}

TEST(Linear, ARowGivesTheSameBitsAloneAndInAnyBatch) {
  std::mt19937 random(13);
  for (const auto& [kind, q8] : kPairs) {
    const Problem p = random_problem(kind, q8, 40, 130, 23, random);
    const PackedLinear w = packed_linear({p.weight});
    const auto all = output_of(p, [&](const Mat<float>& y) { linear(Exec(), w, 0, prepared(p), y); });
    for (std::size_t m = 0; m < p.x.size(); ++m) {
      const Problem alone{p.weight, {p.x[m]}, q8};
      const auto one = output_of(alone, [&](const Mat<float>& y) { linear(Exec(), w, 0, prepared(alone), y); });
      EXPECT_TRUE(std::equal(one.begin(), one.end(), all.begin() + std::ptrdiff_t(m) * 40))
          << name_of(kind) << " row " << m;
    }
  }
}

TEST(Linear, ZeroRowsAndStackedMatricesWork) {
  std::mt19937 random(14);
  for (const auto& [kind, q8] : kPairs) {
    std::vector<Weight> stack;
    for (int i = 0; i < 3; ++i) stack.push_back(random_weight(kind, 21, 64, random));
    const PackedLinear w = packed_linear(stack);
    for (std::int64_t rows : {0, 4}) {
      for (std::size_t i = 0; i < 3; ++i) {
        const Problem p{stack[i], random_rows(rows, 64, random), q8};
        if (rows == 0) {
          Activation a(1, 64, q8);
          const Mat<bf16> none("none", 0, 64);
          q8 ? prepare_q8(Exec(), none, 64, a) : prepare_plain(Exec(), Mat<const bf16>(none), 64, a);
          linear(Exec(), w, std::int64_t(i), a, Mat<float>("y", 0, 21));
          continue;
        }
        EXPECT_EQ(output_of(p, [&](const Mat<float>& y) { linear(Exec(), w, std::int64_t(i), prepared(p), y); }),
                  p.expected());
      }
    }
  }
}

TEST(Linear, OperandsThatDoNotFitAreRefused) {
  std::mt19937 random(15);
  const Problem p = random_problem(WeightKind::fp4, true, 16, 64, 2, random);
  const PackedLinear w = packed_linear({p.weight});
  const Activation q8 = prepared(p);
  const Activation plain = prepared({p.weight, p.x, false});
  Mat<float> y("y", 2, 16);
  EXPECT_THROW(linear(Exec(), w, 1, q8, y), Error);
  EXPECT_THROW(linear(Exec(), w, 0, plain, y), Error);
  EXPECT_THROW(linear(Exec(), w, 0, q8, Mat<float>("narrow", 2, 15)), Error);
  EXPECT_THROW(linear(Exec(), w, 0, q8, Mat<float>("short", 1, 16)), Error);
  PackedLinear wide = w;
  wide.k = 96;
  EXPECT_THROW(linear(Exec(), wide, 0, q8, y), Error);
  Activation small(1, 64, true), without(2, 64, false);
  EXPECT_THROW(prepare_q8(Exec(), to_bf16_view(p.x), 64, small), Error);
  EXPECT_THROW(prepare_q8(Exec(), to_bf16_view(p.x), 64, without), Error);
}

// Rows of several experts, some of them empty, as a step makes them.
struct ExpertProblem {
  std::vector<Weight> experts;
  std::vector<std::vector<float>> x;
  Vec<std::int32_t> offsets, rows;
};

ExpertProblem expert_problem(WeightKind kind, const std::vector<int>& sizes, std::mt19937& random) {
  ExpertProblem p;
  p.x = random_rows(30, 160, random);
  p.offsets = Vec<std::int32_t>("offsets", sizes.size() + 1);
  for (std::size_t e = 0; e < sizes.size(); ++e) {
    p.experts.push_back(random_weight(kind, 50, 160, random));
    p.offsets(e + 1) = p.offsets(e) + sizes[e];
  }
  p.rows = Vec<std::int32_t>("rows", static_cast<std::size_t>(p.offsets(sizes.size())));
  for (std::size_t a = 0; a < p.rows.extent(0); ++a) p.rows(a) = static_cast<std::int32_t>(random() % 30);
  return p;
}

TEST(ExpertLinear, EqualsThePlainLoopOfEachExpert) {
  std::mt19937 random(16);
  for (const auto& [kind, q8] : kPairs) {
    for (const auto& sizes :
         std::vector<std::vector<int>>{{1, 1, 1, 1, 1, 1}, {0, 3, 0, 0, 17, 1, 0}, {300, 2}, {0, 0}}) {
      const ExpertProblem p = expert_problem(kind, sizes, random);
      const PackedLinear w = packed_linear(p.experts);
      const Activation a = prepared({p.experts[0], p.x, q8});
      Mat<bf16> y("y", p.rows.extent(0), 50), portable("portable", p.rows.extent(0), 50);
      expert_linear(Exec(), w, a, {p.offsets, p.rows}, y);
      expert_linear_portable(Exec(), w, a, {p.offsets, p.rows}, portable);
      for (std::size_t e = 0; e < sizes.size(); ++e) {
        for (auto row = static_cast<std::size_t>(p.offsets(e)); row < static_cast<std::size_t>(p.offsets(e + 1));
             ++row) {
          const auto& x = p.x[static_cast<std::size_t>(p.rows(row))];
          const reference::Row in = q8 ? reference::q8_row(x) : reference::plain_row(x);
          for (std::int64_t n = 0; n < 50; ++n) {
            ASSERT_EQ(y(row, n).bits, numerics::bf16_bits(reference::linear(p.experts[e], n, in)))
                << name_of(kind) << " expert " << e;
            ASSERT_EQ(portable(row, n).bits, y(row, n).bits);
          }
        }
      }
    }
  }
}

TEST(ExpertLinear, WithoutRowIndicesAssignmentATakesRowA) {
  std::mt19937 random(17);
  const ExpertProblem p = expert_problem(WeightKind::fp4, {5, 0, 9}, random);
  const PackedLinear w = packed_linear(p.experts);
  const Activation a = prepared({p.experts[0], p.x, true});
  Mat<bf16> y("y", 14, 50);
  expert_linear(Exec(), w, a, {p.offsets, {}}, y);
  for (std::size_t row = 0; row < 14; ++row) {
    const Weight& expert = p.experts[row < 5 ? 0 : 2];
    EXPECT_EQ(y(row, 49).bits, numerics::bf16_bits(reference::linear(expert, 49, reference::q8_row(p.x[row]))));
  }
}

}  // namespace
}  // namespace bathys::test
