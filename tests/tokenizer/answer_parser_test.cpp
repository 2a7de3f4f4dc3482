// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/answer_parser.hpp"

#include "tokenizer/fixtures.hpp"

#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

Answer by_characters(std::string_view output, AnswerStart start) {
  AnswerParser parser(start);
  for (std::size_t i = 0; i < output.size(); ++i) parser.feed(output.substr(i, 1));
  return parser.finish();
}

void expect_answer(const Answer& answer, const Json& expected, const std::string& id) {
  EXPECT_EQ(answer.content, expected.at("content").get<std::string>()) << id;
  EXPECT_EQ(answer.reasoning, expected.at("reasoning").get<std::string>()) << id;
  EXPECT_EQ(answer.calls.empty() ? "stop" : "tool_calls", expected.at("finish_reason").get<std::string>()) << id;
  const Json& calls = expected.at("calls");
  ASSERT_EQ(answer.calls.size(), calls.size()) << id;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    EXPECT_EQ(answer.calls[i].name, calls[i][0].get<std::string>()) << id;
    EXPECT_EQ(answer.calls[i].arguments, calls[i][1].get<std::string>()) << id;
  }
}

AnswerStart start_after(std::string_view body) {
  return answer_start(read_conversation(parse_json(body, "body", ExitCode::bad_requests)));
}

constexpr std::string_view kOpen = "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n";
constexpr std::string_view kClose = "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

TEST(AnswerParser, TakesTheCasesApartWholeAndOneByteAtATime) {
  std::size_t n = 0;
  for (const Json& line : test::read_json_lines(BATHYS_TEST_DATA "/cases/files/chat_parse.jsonl")) {
    const auto id = line.at("id").get<std::string>();
    const auto output = line.at("output").get<std::string>();
    const AnswerStart start = line.at("thinking").get<bool>() ? AnswerStart::reasoning : AnswerStart::content;
    expect_answer(parse_answer(output, start), line.at("expect"), id);
    expect_answer(by_characters(output, start), line.at("expect"), id + " by bytes");
    ++n;
  }
  EXPECT_EQ(n, 23U);
}

TEST(AnswerParser, KeepsLineBreaksOfAContinuedText) {
  EXPECT_EQ(parse_answer("\n\na", AnswerStart::content).content, "a");
  EXPECT_EQ(parse_answer("\n\na", AnswerStart::continued_content).content, "\n\na");
  const Answer answer = parse_answer("\n\nr\n</think>\n\na", AnswerStart::continued_reasoning);
  EXPECT_EQ(answer.reasoning, "\n\nr");
  EXPECT_EQ(answer.content, "a");
}

TEST(AnswerParser, BeginsWithinCallsWhereThePromptDemandedOne) {
  const Answer answer =
      parse_answer("<｜DSML｜ invoke name=\"f\">\n\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", AnswerStart::calls);
  ASSERT_EQ(answer.calls.size(), 1U);
  EXPECT_EQ(answer.calls[0].arguments, "{}");
}

TEST(AnswerParser, LeavesCallsInTheContentWhenNotAskedForThem) {
  const std::string output = std::string("a").append(kOpen).append(kClose);
  EXPECT_EQ(parse_answer(output, AnswerStart::content, false).content, output);
}

TEST(AnswerParser, EscapesNamesOfArguments) {
  const std::string output = std::string(kOpen) +
                             "<｜DSML｜ parameter name=\"a \"b\\\" string=\"true\">1</｜DSML｜ parameter>\n" +
                             "<｜DSML｜ parameter name=\"n\">2</｜DSML｜ parameter>\n" + std::string(kClose);
  for (const Answer& answer :
       {parse_answer(output, AnswerStart::content), by_characters(output, AnswerStart::content)}) {
    ASSERT_EQ(answer.calls.size(), 1U);
    EXPECT_EQ(answer.calls[0].arguments, R"({"a \"b\\": "1", "n": 2})");
  }
}

TEST(AnswerParser, LosesNothingOfTornEnds) {
  EXPECT_EQ(parse_answer("a\n\n</thi", AnswerStart::reasoning).reasoning, "a\n\n</thi");
  EXPECT_EQ(parse_answer("a\n\n", AnswerStart::content).content, "a\n\n");
  EXPECT_EQ(parse_answer("a <｜DS", AnswerStart::content).content, "a <｜DS");
  const std::string call = std::string(kOpen) + "<｜DSML｜ parameter name=\"x\" string=\"true\">v</｜DS";
  EXPECT_EQ(parse_answer(call, AnswerStart::content).calls.at(0).arguments, R"({"x": "v</｜DS)");
  const auto torn = [](const std::string& tag) {
    const std::string output = std::string(kOpen) + "<｜DSML｜ parameter name=\"" + tag;
    const std::string whole = parse_answer(output, AnswerStart::content).calls.at(0).arguments;
    EXPECT_EQ(by_characters(output, AnswerStart::content).calls.at(0).arguments, whole);
    return whole;
  };
  EXPECT_EQ(torn("x\">[1, 2"), R"({"x": [1, 2)");  // no attribute says what the value is: it is there all the same
  EXPECT_EQ(torn("x\" str"), R"({"x": )");
  EXPECT_EQ(torn("a>b\">5"), R"({"a>b": 5)");
  EXPECT_EQ(torn("a>b"), "");
}

// A quadratic reader would not end within the test's time.
TEST(AnswerParser, TakesTimeInProportionToTheOutput) {
  for (const std::string_view unit : {"\n", "<", "</think>", "\n\n<", "<｜"}) {
    std::string output;
    while (output.size() < 2'000'000) output += unit;
    const Answer whole = parse_answer(output, AnswerStart::content);
    EXPECT_EQ(by_characters(output, AnswerStart::content).content, whole.content);
  }
  std::string value(2'000'000, '"');
  const std::string call = std::string(kOpen) + "<｜DSML｜ parameter name=\"" + value;
  EXPECT_EQ(by_characters(call, AnswerStart::content).calls.size(), 1U);
}

TEST(AnswerParser, StartsWhereThePromptEnds) {
  const std::string user = R"({"messages":[{"role":"user","content":"q"})";
  EXPECT_EQ(start_after(user + "]}"), AnswerStart::reasoning);
  EXPECT_EQ(start_after(user + R"(],"thinking":false})"), AnswerStart::content);
  EXPECT_EQ(start_after(user + R"(],"thinking":false,"tool_choice":"required",
    "tools":[{"type":"function","function":{"name":"f"}}]})"),
            AnswerStart::calls);
  EXPECT_EQ(start_after(user + R"(,{"role":"assistant","content":"a","prefix":true}]})"),
            AnswerStart::continued_content);
  EXPECT_EQ(start_after(user + R"(,{"role":"assistant","content":"","reasoning_content":"r","prefix":true}]})"),
            AnswerStart::continued_reasoning);
}

}  // namespace
}  // namespace bathys::tokenizer
