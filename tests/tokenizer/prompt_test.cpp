// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt.hpp"

#include "tokenizer/fixtures.hpp"
#include "tokenizer/sha256.hpp"

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include <fmt/format.h>
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

std::string hash_of(const std::string& text) { return sha256_hex(std::as_bytes(std::span(text))); }

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

TEST(Prompt, SpellsTheCasesAsTheOfficialEncoding) {
  std::size_t n = 0;
  for (const Json& line : test::read_json_lines(BATHYS_TEST_DATA "/cases/files/chat_cases.jsonl")) {
    const auto id = line.at("id").get<std::string>();
    const Json& expected = line.at("expect");
    const Conversation c = read_conversation(line.at("body"));
    const std::string prompt = text_of(c);
    EXPECT_EQ(prompt.size(), expected.at("prompt_bytes").get<std::size_t>()) << id;
    EXPECT_EQ(hash_of(prompt), expected.at("prompt_sha256").get<std::string>()) << id;
    EXPECT_TRUE(prompt.ends_with(expected.at("tail").get<std::string>())) << id << ": " << prompt;
    for (const Json& schema : expected.value("schema", Json::array())) {
      EXPECT_NE(prompt.find("\n" + schema.get<std::string>() + "\n"), std::string::npos) << id << ": " << prompt;
    }
    const Ids ids = encode_prompt(nano_tokenizer(), c);
    EXPECT_EQ(ids.size(), expected.at("nano_ids").get<std::size_t>()) << id;
    EXPECT_EQ(hash_of(Json(ids).dump()), expected.at("nano_ids_sha256").get<std::string>()) << id;
    ++n;
  }
  EXPECT_EQ(n, 10U);
}

TEST(Prompt, EqualsTheOfficialEncodingOfRandomConversationsWithTools) {
  std::size_t n = 0;
  for (const Json& line : test::read_json_lines(BATHYS_TEST_DATA "/tokenizer/data/tool_chat_vectors.jsonl")) {
    const auto body = line.at("body").get<std::string>();  // as text: numbers keep their spelling
    const Conversation c = conversation(body);
    ASSERT_EQ(hash_of(text_of(c)), line.at("prompt_sha256").get<std::string>()) << body;
    ASSERT_EQ(hash_of(Json(encode_prompt(nano_tokenizer(), c)).dump()), line.at("ids_sha256").get<std::string>())
        << body;
    ++n;
  }
  EXPECT_EQ(n, 300U);
}

TEST(Prompt, PutsTheTokenOfATaskBehindItsMessage) {
  const auto prompt = [](std::string_view messages, bool thinking) {
    return text_of(conversation(fmt::format(R"({{"thinking":{},"messages":[{}]}})", thinking, messages)));
  };
  const std::string bos = "<｜begin▁of▁sentence｜>";
  EXPECT_EQ(prompt(R"({"role":"user","content":"u","task":"query"})", false), bos + "<｜User｜>u<｜query｜>");
  EXPECT_EQ(prompt(R"({"role":"user","content":"u","task":"action"})", false),
            bos + "<｜User｜>u<｜Assistant｜></think><｜action｜>");
  EXPECT_TRUE(prompt(R"({"role":"user","content":"u","task":"action"})", true)
                  .ends_with("<｜User｜>u<｜Assistant｜><think><｜action｜>"));
  EXPECT_EQ(prompt(R"({"role":"user","content":"u"},{"role":"assistant","content":"a","task":"title"},
                      {"role":"assistant","content":"t"},{"role":"user","content":"v"})",
                   false),
            bos +
                "<｜User｜>u<｜Assistant｜></think>a<｜end▁of▁sentence｜><｜title｜>t<｜end▁of▁sentence｜>"
                "<｜User｜>v<｜Assistant｜></think>");
}

TEST(Prompt, ShowsMembersOfNamespaces) {
  const std::string text = text_of(conversation(R"({"messages":[{"role":"user","content":"u"}],"tools":[
    {"type":"namespace","name":"ns","description":"D","tools":[{"type":"function","name":"f","description":"d"},
                                                               {"type":"function","name":"g"}]}]})"));
  EXPECT_NE(text.find(R"({"name": "ns::f", "description": "D\nd", "parameters": {}})"), std::string::npos);
  EXPECT_NE(text.find(R"({"name": "ns::g", "description": "D\n", "parameters": {}})"), std::string::npos);
}

TEST(Prompt, CountsImagesAndKeepsTheirPlace) {
  const Conversation c = conversation(R"({"thinking":false,"messages":[{"role":"user","content":[
    {"type":"text","text":"a <｜deepseek_image｜>"},{"type":"image_url","image_url":{"url":"data:,"}}]},
    {"role":"user","content":"b"}]})");
  EXPECT_EQ(c.n_images, 1);
  EXPECT_EQ(render_prompt(c)[2], (PromptPart{"a <｜deepseek_image｜>\n\n", false}));
  EXPECT_EQ(render_prompt(c)[3], (PromptPart{"<｜deepseek_image｜>", true}));
  EXPECT_EQ(render_prompt(c)[4], (PromptPart{"\n\nb", false}));
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
  EXPECT_EQ(refusal(user + R"("response_format":{"type":"json_object"}})"), "invalid_messages");  // says no "json"
  EXPECT_EQ(refusal(user + R"("response_format":{"type":"regex","regex":"a"}})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":101})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":true})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("effort":50.0})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"("thinking":"yes"})"), "unsupported_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"), "invalid_messages");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":[{"type":"file"}]}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"user","content":"x","task":"sing"}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(R"({"messages":[{"role":"system","content":"x","tools":[]}]})"), "unsupported_parameter");
}

TEST(Prompt, RefusesToolsThatHaveNoSpelling) {
  const std::string user = R"({"messages":[{"role":"user","content":"x"}],"tools":[)";
  const std::string f = R"({"type":"function","function":{"name":"f"}})";
  EXPECT_EQ(refusal(user + f + "," + f + "]}"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"({"type":"function","function":{"name":"a b"}}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"({"type":"function","function":{"name":"f","parameters":{}}}]})"),
            "unsupported_parameter");
  EXPECT_EQ(refusal(user + R"({"type":"function","function":{"name":"f","strict":true}}]})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + f + R"(],"thinking":false,"tool_choice":"maybe"})"), "unsupported_parameter");
  EXPECT_EQ(refusal(user + f + R"(],"tool_choice":"required"})"), "unsupported_parameter");  // while thinking
  EXPECT_EQ(refusal(user + f + R"(],"thinking":false,"tool_choice":{"type":"function","function":{"name":"g"}}})"),
            "unsupported_parameter");
  EXPECT_EQ(refusal(user + f + R"(],"thinking":false,"tool_choice":"required"})"), "");
}

// The words with which a chat of these members beside a user's message is refused.
std::string words_of(const std::string& body) {
  try {
    (void)conversation(body);
  } catch (const PromptError& error) {
    return error.what();
  }
  return "taken";
}

TEST(Prompt, ChecksSchemasOnlyWhereTheyAreUsed) {
  const auto words = [](const std::string& function, const std::string& more) {
    return words_of(R"({"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{)" +
                    function + "}}]" + more + "}");
  };
  const std::string none = R"(,"tool_choice":"none")";
  for (const std::string function : {R"("name":"f","strict":true)", R"("name":"f","parameters":{"type":"x"})"}) {
    EXPECT_NE(words(function, ""), "taken") << function;
    EXPECT_EQ(words(function, none), "taken") << function;
  }
  for (const std::string function : {R"("name":"a b")", R"("name":"f","strict":5)", R"("name":5)"}) {
    EXPECT_NE(words(function, none), "taken") << function;
  }
  EXPECT_EQ(words("\"name\":\"" + std::string(128, 'f') + "\"", ""), "taken");
  EXPECT_NE(words("\"name\":\"" + std::string(129, 'f') + "\"", ""), "taken");
}

TEST(Prompt, RefusesWrongTypesAlsoOfWhatItDoesNotUse) {
  const auto with = [](const std::string& more) {
    return words_of(R"({"messages":[{"role":"user","content":"x"}])" + more + "}");
  };
  const auto message = [](const std::string& text) { return words_of(R"({"messages":[)" + text + "]}"); };
  EXPECT_EQ(with(R"(,"tool_choice":"banana")"), R"(tool_choice "banana", expected none, auto, required or a function)");
  EXPECT_EQ(with(R"(,"tool_choice":5)"), "tool_choice 5, expected none, auto, required or a function");
  EXPECT_EQ(with(R"(,"tool_choice":"required")"), "taken");  // among no tools it says nothing
  EXPECT_NE(with(R"(,"effort":"low","reasoning_effort":"banana")"), "taken");
  EXPECT_EQ(with(R"(,"effort":"low","reasoning_effort":"low")"), "taken");
  EXPECT_NE(with(R"(,"response_format":{"type":"json_schema","json_schema":{"name":5,"schema":{}}})"), "taken");
  EXPECT_NE(with(R"(,"response_format":{"type":"json_schema","json_schema":{"strict":5,"schema":{}}})"), "taken");
  EXPECT_EQ(with(R"(,"response_format":{"type":"json_schema","json_schema":{"name":"n","schema":{}}})"), "taken");
  EXPECT_EQ(message(R"({"role":"user","content":"x","name":5})"), "message 0: name is 5, expected a string");
  EXPECT_EQ(message(R"({"role":"user","content":"x","name":"n"})"), "taken");
  EXPECT_NE(message(R"({"role":"latest_reminder","content":[{"type":"text","text":"x"}]})"), "taken");
  const auto image = [&](const std::string& detail) {
    return message(R"({"role":"user","content":[{"type":"image_url","image_url":{"url":"u")" + detail + "}}]}");
  };
  EXPECT_EQ(image(R"(,"detail":"low")"), "taken");
  EXPECT_NE(image(R"(,"detail":5)"), "taken");
  EXPECT_EQ(words_of("{}"), "messages is missing, expected a list");
  EXPECT_EQ(words_of(R"({"messages":5})"), "messages is 5, expected a list");
}

TEST(Prompt, RefusesATaskThatWouldVanishOrSpoilThePrompt) {
  const auto message = [](const std::string& text) { return words_of(R"({"messages":[)" + text + "]}"); };
  const std::string call =
      R"({"role":"assistant","tool_calls":[{"id":"a","type":"function","function":{"name":"f","arguments":"{}"}}]},)";
  const std::string reminder = R"({"role":"latest_reminder","content":"x"})";
  const std::string tasked = R"({"role":"latest_reminder","content":"y","task":"title"})";
  EXPECT_NE(message(call + R"({"role":"tool","tool_call_id":"a","content":"x","task":"title"})"), "taken");
  EXPECT_NE(message(R"({"role":"system","content":"","task":"title"},{"role":"user","content":"q"})"), "taken");
  EXPECT_EQ(message(R"({"role":"system","content":"s","task":"title"})"), "taken");
  EXPECT_EQ(message(tasked), "taken");
  EXPECT_NE(message(reminder + "," + tasked), "taken");
  EXPECT_NE(message(reminder + R"(,{"role":"system","content":""},)" + tasked), "taken");
  EXPECT_EQ(message(reminder + R"(,{"role":"user","content":"q"},)" + tasked), "taken");
  EXPECT_NE(message(R"({"role":"assistant","content":"a","prefix":true,"task":"title"})"), "taken");
  const auto demanded = [](const std::string& task) {
    return words_of(R"({"messages":[{"role":"user","content":"x")" + task +
                    R"(}],"thinking":false,"tool_choice":"required",)" +
                    R"("tools":[{"type":"function","function":{"name":"f"}}]})");
  };
  EXPECT_EQ(demanded(""), "taken");
  EXPECT_NE(demanded(R"(,"task":"title")"), "taken");
}

TEST(Prompt, QuotesAShortPieceOfWhatItRefuses) {
  const std::string huge = '"' + std::string(1'000'000, 'x') + '"';
  const std::string user = R"({"messages":[{"role":"user","content":"x"}],)";
  const std::string message = R"({"messages":[{"role":"user","content":"x",)";
  const std::string f = R"({"type":"function","function":{"name":)" + huge + "}}";
  const std::string call = R"({"id":)" + huge + R"(,"type":"function","function":{"name":"f","arguments":"{}"}})";
  for (const std::string& body : {
           R"({"messages":)" + huge + "}",
           R"({"messages":[{"role":)" + huge + R"(,"content":"x"}]})",
           R"({"messages":[{"role":"user","content":[{"type":)" + huge + "}]}]}",
           R"({"messages":[{"role":"user","content":{"a":)" + huge + "}}]}",
           message + R"("task":)" + huge + "}]}",
           R"({"messages":[{"role":"assistant","content":"x","prefix":)" + huge + "}]}",
           R"({"messages":[{"role":"assistant","tool_calls":)" + huge + "}]}",
           R"({"messages":[{"role":"assistant","tool_calls":[)" + call + "," + call + "]}]}",
           R"({"messages":[{"role":"tool","content":"x","tool_call_id":)" + huge + "}]}",
           user + R"("effort":)" + huge + "}",
           user + R"("thinking":)" + huge + "}",
           user + R"("drop_thinking":)" + huge + "}",
           user + R"("tools":)" + huge + "}",
           user + R"("tools":[)" + f + "]}",
           user + R"("tool_choice":)" + huge + "}",
           user + R"("tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":)" + f + "}",
           user + R"("response_format":)" + huge + "}",
       }) {
    const std::string words = words_of(body);
    EXPECT_NE(words, "taken") << body.substr(0, 100);
    EXPECT_LT(words.size(), 300U) << words.substr(0, 400);
  }
}

TEST(Prompt, RefusesCallsWithoutTheirResults) {
  const auto code = [](std::string_view more) {
    return refusal(fmt::format(R"({{"messages":[{{"role":"user","content":"q"}},{{"role":"assistant","tool_calls":[
      {{"id":"a","type":"function","function":{{"name":"f","arguments":"{{}}"}}}}]}}{}]}})",
                               more));
  };
  const std::string result = R"(,{"role":"tool","tool_call_id":"a","content":"x"})";
  EXPECT_EQ(code(result), "");
  EXPECT_EQ(code(""), "invalid_messages");
  EXPECT_EQ(code(result + result), "invalid_messages");
  EXPECT_EQ(code(R"(,{"role":"tool","tool_call_id":"b","content":"x"})"), "invalid_messages");
  EXPECT_EQ(code(R"(,{"role":"user","content":"x"})" + result), "invalid_messages");
  EXPECT_EQ(code(result + R"(,{"role":"assistant","content":"x","prefix":true})"), "invalid_messages");
}

}  // namespace
}  // namespace bathys::tokenizer
