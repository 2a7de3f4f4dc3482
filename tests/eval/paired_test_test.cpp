// SPDX-License-Identifier: Apache-2.0
#include "eval/paired_test.hpp"

#include <cmath>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

TEST(PairedTest, HasTheTailsOfItsDistributions) {
  EXPECT_DOUBLE_EQ(mcnemar_p(0, 0), 1);
  EXPECT_DOUBLE_EQ(mcnemar_p(1, 0), 1);
  EXPECT_NEAR(mcnemar_p(1, 9), 22.0 / 1024, 1e-14);  // 2 (C(10,0) + C(10,1)) / 2^10
  EXPECT_NEAR(mcnemar_p(9, 1), 22.0 / 1024, 1e-14);
  EXPECT_DOUBLE_EQ(mcnemar_p(5, 5), 1);
  EXPECT_NEAR(student_p(1, 1), 0.5, 1e-14);              // Cauchy: 1 - 2 atan(1) / pi
  EXPECT_NEAR(student_p(2, 2), 0.1835034190722, 1e-12);  // 1 - 2 / sqrt(6)
  EXPECT_NEAR(student_p(2, 10), 0.07338803477074, 1e-12);
  EXPECT_NEAR(student_p(-2, 10), 0.07338803477074, 1e-12);
  EXPECT_NEAR(student_p(1.959963984540054, 1e7), 0.05, 1e-7);  // the normal limit
  EXPECT_DOUBLE_EQ(student_p(0, 5), 1);
}

TEST(PairedTest, CountsDiscordantPairsOfZerosAndOnes) {
  PairedTest test;
  for (int i = 0; i < 9; ++i) test.add(0, 1);
  test.add(1, 0);
  test.add(1, 1);
  test.add(0, 0);
  const PairedResult result = test.result();
  EXPECT_EQ(result.test, "exact McNemar");
  EXPECT_EQ(result.n, 12);
  EXPECT_EQ(result.higher, 9);
  EXPECT_EQ(result.lower, 1);
  EXPECT_DOUBLE_EQ(*result.difference, 8.0 / 12);
  EXPECT_NEAR(*result.p_value, 22.0 / 1024, 1e-14);
}

TEST(PairedTest, ComparesOtherValuesByTheirMeanDifference) {
  PairedTest test;
  test.add(1, 2);
  test.add(1, 2.5);
  test.add(1, 1.5);
  const PairedResult result = test.result();
  EXPECT_EQ(result.test, "paired t");
  EXPECT_DOUBLE_EQ(*result.difference, 1);
  EXPECT_DOUBLE_EQ(*result.standard_error, 0.5 / std::sqrt(3.0));
  EXPECT_NEAR(*result.p_value, student_p(2 * std::sqrt(3.0), 2), 1e-15);
}

TEST(PairedTest, SaysNothingThatIsNotDefined) {
  PairedTest test;
  EXPECT_FALSE(test.result().difference);
  EXPECT_FALSE(test.result().p_value);
  test.add(1.5, 1.25);
  EXPECT_EQ(test.result().n, 1);
  EXPECT_DOUBLE_EQ(*test.result().difference, -0.25);
  EXPECT_FALSE(test.result().standard_error);
  EXPECT_FALSE(test.result().p_value);
  PairedTest same;
  same.add(1.5, 1.5);
  same.add(2.5, 2.5);
  EXPECT_DOUBLE_EQ(*same.result().p_value, 1);
}

}  // namespace
}  // namespace bathys::eval
