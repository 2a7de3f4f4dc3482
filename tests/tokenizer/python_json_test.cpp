// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/python_json.hpp"

#include <string>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

std::string rewritten(std::string_view text) { return python_json(parse_json(text, "text", ExitCode::bad_input)); }

TEST(PythonJson, WritesNumbersAsPythonDoes) {
  // What json.dumps(json.loads(text)) of Python 3.11 gives, where both are the same number.
  EXPECT_EQ(rewritten("[1e5,1e15,1e16,123456789012345680.0,1e-4,1e-5,1.234e-3,-1e-7,5e-324,1.7976931348623157e308]"),
            "[100000.0, 1000000000000000.0, 1e+16, 1.2345678901234568e+17, 0.0001, 1e-05, 0.001234, -1e-07, 5e-324, "
            "1.7976931348623157e+308]");
  EXPECT_EQ(rewritten("[1.50,0.1,2.5,6929495644600919.5,9007199254740993.0,12.0,0.0,-0.0]"),
            "[1.5, 0.1, 2.5, 6929495644600920.0, 9007199254740992.0, 12.0, 0.0, -0.0]");
  EXPECT_EQ(rewritten("[0,-5,9007199254740993,18446744073709551615,-9223372036854775808]"),
            "[0, -5, 9007199254740993, 18446744073709551615, -9223372036854775808]");
}

// The reference is no Python there: it has integers of 64 bits, and reads -0 as a float.
TEST(PythonJson, WritesIntegersBeyond64BitsAsFloats) {
  EXPECT_EQ(rewritten("[18446744073709551616,-9223372036854775809,12345678901234567890123,-0]"),
            "[1.8446744073709552e+19, -9.223372036854776e+18, 1.2345678901234568e+22, -0.0]");
}

TEST(PythonJson, KeepsOrderAndEscapesOnlyWhatItMust) {
  EXPECT_EQ(rewritten(R"({"10":[ ],"9":{ },"é\u2028":"\u0001\u001f\u007f\/\"\\\b\f\n\r\t😀"})"),
            "{\"10\": [], \"9\": {}, \"é\u2028\": \"\\u0001\\u001f\x7f/\\\"\\\\\\b\\f\\n\\r\\t😀\"}");
}

TEST(PythonJson, TakesOnlyObjectsAsArguments) {
  EXPECT_EQ(python_json(parse_call_arguments(R"( {"a":1,"b":2,"a":"3"} )").value()), R"({"a": "3", "b": 2})");
  for (const char* text : {"", "null", "[1]", "{", "{} x", R"({"a":1,})", R"({"a":NaN})", R"({"a":01})",
                           R"({"a":1e999})", "\xEF\xBB\xBF{}", R"({"a":"\ud800"})"}) {
    EXPECT_FALSE(parse_call_arguments(text).has_value()) << text;
  }
  EXPECT_FALSE(parse_call_arguments(std::string_view("{\"a\":1}\0junk", 12)).has_value());
  EXPECT_FALSE(parse_call_arguments(std::string_view("{\"a\":1}\0", 8)).has_value());
  const auto nested = [](std::size_t n) { return R"({"a":)" + std::string(n, '[') + std::string(n, ']') + "}"; };
  EXPECT_TRUE(parse_call_arguments(nested(126)).has_value());
  EXPECT_FALSE(parse_call_arguments(nested(127)).has_value());
  EXPECT_FALSE(parse_call_arguments(nested(1'000'000)).has_value());
}

}  // namespace
}  // namespace bathys::tokenizer
