// SPDX-License-Identifier: Apache-2.0
#include "core/json.hpp"

#include "core/shown.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bathys {
namespace {

// Values and refusals at large: compare_json_with_python.py.

TEST(Json, TakesAnObjectOfAMillionKeysInOrder) {
  // Each key looked for among those before it would be minutes.
  constexpr int kKeys = 1'000'000;
  std::string text = "{";
  for (int i = 0; i < kKeys; ++i) text += fmt::format("{}\"key {}\":{}", i == 0 ? "" : ",", i, i);
  Json value;
  ASSERT_EQ(try_parse_json(text + "}", value), std::nullopt);
  ASSERT_EQ(value.size(), std::size_t{kKeys});
  EXPECT_EQ(value.front(), 0);
  EXPECT_EQ(value.back(), kKeys - 1);
  const auto twice = try_parse_json(text + R"(,"key 5":1})", value);
  ASSERT_TRUE(twice);
  EXPECT_NE(twice->find("\"key 5\" stands twice"), std::string::npos) << *twice;
}

TEST(Json, NestsValuesWhereTheyStand) {
  const std::string text = R"({"a":[1,{"b":[[],{}],"c":null},"x"],"d":{"e":-1.5,"a":true}})";
  Json value;
  ASSERT_EQ(try_parse_json(text, value), std::nullopt);
  EXPECT_EQ(value.dump(), text);
}

TEST(Json, TheLastOfEqualKeysCountsAtTheFirstPlaceWhereTheyMayStand) {
  Json value;
  ASSERT_EQ(try_parse_json(R"({"a":{"x":1},"b":2,"a":{"y":[3]}})", value, {.max_depth = 8, .unique_keys = false}),
            std::nullopt);
  EXPECT_EQ(value.dump(), R"({"a":{"y":[3]},"b":2})");
}

TEST(Json, ACauseStaysShortHoweverLongTheText) {
  const std::string digits(1'000'000, '1');
  Json value;
  for (const std::string& text : {digits, "[1e" + digits + "]", "\"" + digits, "{\"" + digits + "\":1,}"}) {
    const auto cause = try_parse_json(text, value);
    if (text == digits) {
      ASSERT_TRUE(cause);  // beyond a double
      EXPECT_EQ(cause->find('['), std::string::npos) << *cause;
    }
    ASSERT_TRUE(cause);
    EXPECT_LT(cause->size(), 400U);
  }
}

TEST(Printable, IsOneLineThatNoTerminalObeys) {
  EXPECT_EQ(printable("a\nb\x1b[31m\x7f\t"), "a\\x0ab\\x1b[31m\\x7f\\x09");
  EXPECT_EQ(printable("\xc2\x9b\xc2\xa0\xc3\xa9"), "\\x9b\xc2\xa0\xc3\xa9");
  EXPECT_EQ(printable("a\xff"), "a\xef\xbf\xbd");
  EXPECT_EQ(printable("ab\xc3\xa9", 3), "ab\xef\xbf\xbd...");
  EXPECT_EQ(printable("abc", 3), "abc");
}

TEST(NearestName, IsNoneForAWordLongerThanAll) {
  EXPECT_EQ(nearest_name(std::string(50'000'000, 'k'), {"custom_id", "body"}), "");
  EXPECT_EQ(nearest_name("custom_ids", {"custom_id", "body"}), "custom_id");
}

}  // namespace
}  // namespace bathys
