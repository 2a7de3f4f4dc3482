// SPDX-License-Identifier: Apache-2.0
#include "eval/json_text.hpp"

#include "core/error.hpp"

#include <cstdlib>
#include <limits>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

TEST(RawMember, IsTheTextOfTheValueAsWritten) {
  EXPECT_EQ(raw_member(R"({"a": 1 , "meta" : 1E400,"b":2})", "meta"), "1E400");
  EXPECT_EQ(raw_member(R"({"meta":{"a":[1,{"b":"}"}],"c":"\"]"},"x":0})", "meta"), R"({"a":[1,{"b":"}"}],"c":"\"]"})");
  EXPECT_EQ(raw_member(R"({"meta":null})", "meta"), "null");
  EXPECT_EQ(raw_member(R"({"m\u0065ta":[ ] })", "meta"), "[ ]");
}

TEST(RawMember, LooksIntoTheOutermostObjectOnly) {
  EXPECT_FALSE(raw_member(R"({"body":{"meta":1},"x":"meta"})", "meta"));
  EXPECT_FALSE(raw_member(R"(["meta",1])", "meta"));
}

TEST(RawMember, EndsOnTextThatIsNoJson) {
  const std::string text = R"({"a":[1,{"b":"\"x"}],"meta":{"c":"d\\"},"e":5})";
  for (std::size_t n = 0; n <= text.size(); ++n) {
    const std::string cut = text.substr(0, n);
    const auto found = raw_member(cut, "meta");
    if (found) {
      EXPECT_LE(found->data() + found->size(), cut.data() + cut.size());
    }
  }
}

TEST(NeutralNumbers, ReplacesNumbersOfTheGrammarAndNothingElse) {
  EXPECT_EQ(neutral_numbers(R"([1e400, -0.5,"12","\"3",18446744073709551616])"), R"([0, 0,"12","\"3",0])");
  for (const std::string bad : {"01", "1.", ".5", "+1", "1e", "--1", "1.e5", "-"}) {
    const std::string text = neutral_numbers("[" + bad + "]");
    EXPECT_NE(text, "[0]") << bad;
  }
}

TEST(JsonNumber, IsShortestAndFloatingPoint) {
  EXPECT_EQ(json_number(0.1), "0.1");
  EXPECT_EQ(json_number(0), "0.0");
  EXPECT_EQ(json_number(-3), "-3.0");
  EXPECT_EQ(json_number(1e300), "1e+300");
  for (const double value : {-41.156700134277344, 5e-324, 1.7976931348623157e308, 1.0 / 3}) {
    EXPECT_EQ(std::strtod(json_number(value).c_str(), nullptr), value);
  }
}

TEST(JsonNumber, RefusesWhatJsonCannotSay) {
  EXPECT_THROW(static_cast<void>(json_number(std::numeric_limits<double>::quiet_NaN())), Error);
  EXPECT_THROW(static_cast<void>(json_number(std::numeric_limits<double>::infinity())), Error);
}

}  // namespace
}  // namespace bathys::eval
