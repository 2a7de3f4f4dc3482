// SPDX-License-Identifier: Apache-2.0
#include "parallel/float_order.hpp"

#include <cstring>
#include <iterator>
#include <limits>

#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

TEST(FloatOrder, KeysAreOrderedAsTheNumbersAndReturnTheirBits) {
  const float ascending[] = {-std::numeric_limits<float>::infinity(), -1e30f, -1.0f, -1e-45f, -0.0f, 0.0f, 1e-45f, 1.0f,
                             std::numeric_limits<float>::infinity()};
  for (std::size_t i = 0; i < std::size(ascending); ++i) {
    if (i > 0) {
      EXPECT_LT(key_of_float(ascending[i - 1]), key_of_float(ascending[i]));
    }
    const float back = float_of_key(key_of_float(ascending[i]));
    EXPECT_EQ(std::memcmp(&back, &ascending[i], sizeof back), 0);
  }
  EXPECT_EQ(key_of_float(std::numeric_limits<float>::quiet_NaN()), kNanKey);
  EXPECT_EQ(key_of_float(-std::numeric_limits<float>::quiet_NaN()), kNanKey);
  EXPECT_NE(float_of_key(kNanKey), float_of_key(kNanKey));
}

}  // namespace
}  // namespace bathys::parallel
