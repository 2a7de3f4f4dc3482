// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt.hpp"

#include "tokenizer/fixtures.hpp"

#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using test::large_tokenizer;
using test::nano_tokenizer;
using ::testing::ElementsAre;
using Ids = std::vector<TokenId>;

Conversation conversation(std::string_view body) {
  return read_conversation(parse_json(body, "body", ExitCode::bad_requests));
}

std::string text_of(const Conversation& c) {
  std::string text;
  for (const PromptPart& part : render_prompt(c)) text += part.text;
  return text;
}

std::string refusal(std::string_view body) {
  try {
    (void)conversation(body);
  } catch (const PromptError& error) {
    return error.code();
  }
  return "";
}

TEST(Prompt, EqualsTheOfficialEncodingOfRandomConversations) {
  std::size_t n = 0;
  for (const Json& line : test::read_json_lines(BATHYS_TEST_DATA "/tokenizer/data/chat_vectors.jsonl")) {
    const Conversation c = read_conversation(line.at("body"));
    ASSERT_EQ(text_of(c), line.at("prompt").get<std::string>()) << line.at("body").dump();
    ASSERT_EQ(encode_prompt(nano_tokenizer(), c), line.at("ids").get<Ids>()) << line.at("body").dump();
    ++n;
  }
  EXPECT_EQ(n, 400U);
}

TEST(Prompt, ThinksUnlessToldOtherwise) {
  const std::string user = R"({"messages":[{"role":"user","content":"hello"}])";
  EXPECT_THAT(encode_prompt(large_tokenizer(), conversation(user + R"(,"thinking":false})")),
              ElementsAre(0, 128803, 33310, 128804, 128822));
  EXPECT_TRUE(conversation(user + "}").thinking);
  EXPECT_EQ(conversation(user + "}").effort, 75);
  EXPECT_FALSE(conversation(user + R"(,"effort":"none"})").thinking);
  EXPECT_TRUE(conversation(user + R"(,"effort":"none","thinking":true})").thinking);
  EXPECT_EQ(conversation(user + R"(,"effort":30})").effort, 30);
  EXPECT_NE(text_of(conversation(user + R"(,"effort":30})")).find("Reasoning Effort: 30 (range 1-100"),
            std::string::npos);
}

TEST(Prompt, KeepsTheReasoningOfAllTurnsWhenAsked) {
  EXPECT_NE(text_of(conversation(R"({"drop_thinking":false,"messages":[{"role":"user","content":"q"},
    {"role":"assistant","content":"a","reasoning_content":"r"},{"role":"user","content":"q"}]})"))
                .find("<｜Assistant｜><think>r</think>a<｜end▁of▁sentence｜><｜User｜>q<｜Assistant｜><think>"),
            std::string::npos);
}

TEST(Prompt, RefusesWhatItCannotSay) {
  EXPECT_EQ(refusal(R"({})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"content":"x"}]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"developer","content":"x"}]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user"}]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":5}]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"assistant","content":"x","prefix":true},{"role":"user","content":"x"}]})"),
            "invalid_messages");
  const std::string user = R"({"messages":[{"role":"user","content":"x"}],)";
  EXPECT_EQ(refusal(user + R"("tools":[{}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("response_format":{"type":"json_object"}})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":101})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":true})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":50.0})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("thinking":"yes"})"), "unsupported_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"tool","content":"x"}]})"), "unsupported_parameter");
}

}  // namespace
}  // namespace bathys::tokenizer
