// SPDX-License-Identifier: Apache-2.0
#include "eval/journal.hpp"
#include "eval/openai_output.hpp"
#include "eval/openai_request.hpp"
#include "eval/support.hpp"
#include "io/temp_folder.hpp"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using test::nano_context;
using test::nano_tokenizer;

std::string line_of(std::string_view url, const std::string& body) {
  return R"({"custom_id":"a","url":")" + std::string(url) + R"(","body":)" + body + "}\n";
}

std::vector<Request> read(std::string_view url, const std::string& body) {
  RequestFile file = test::read(line_of(url, body));
  EXPECT_TRUE(file.faults.empty()) << file.faults.front().text();
  return std::move(file.requests);
}

std::string fault_of(std::string_view url, const std::string& body) {
  const RequestFile file = test::read(line_of(url, body));
  return file.faults.empty() ? "none" : file.faults.front().code;
}

std::string completion(const std::string& members) { return R"({"prompt":"a")" + members + "}"; }
std::string chat(const std::string& members) {
  return R"({"messages":[{"role":"user","content":"a"}])" + members + "}";
}

// Why the record fails.
std::string failure_of(std::string_view url, const std::string& body) {
  const Request request = read(url, body).at(0);
  const std::array<std::int32_t, 1> once = {0};
  const PreparedTask task = prepare_task(request, nano_context(), once);
  return task.failure ? task.failure->code : "none";
}

TEST(OpenAiRequest, HasTheInterfacesDefaults) {
  const Request text = read(kCompletionsUrl, completion("")).at(0);
  EXPECT_STREQ(text.kind(), "completion");
  EXPECT_EQ(text.model, "nano");
  EXPECT_EQ(text.seed, 5U);
  const auto& body = std::get<Generate>(text.body);
  EXPECT_EQ(body.max_gen_toks, 16);
  EXPECT_EQ(body.temperature, 1);
  EXPECT_EQ(body.top_p, 1);
  EXPECT_EQ(body.repeats, 1);
  const Request talk = read(kChatUrl, chat(R"(,"max_length":100)")).at(0);
  EXPECT_STREQ(talk.kind(), "chat_completion");
  EXPECT_TRUE(std::get<Generate>(talk.body).fill_length);
  EXPECT_EQ(std::get<Generate>(talk.body).max_gen_toks, 100);
}

TEST(OpenAiRequest, TakesAPromptInEachForm) {
  const auto context = [](const std::string& prompt, std::size_t i) {
    return std::get<Generate>(read(kCompletionsUrl, R"({"n":2,"prompt":)" + prompt + "}").at(i).body).context;
  };
  EXPECT_EQ(std::get<std::string>(context(R"("b")", 0)), "b");
  EXPECT_EQ(std::get<TokenIds>(context("[3,4]", 0)), (TokenIds{3, 4}));
  EXPECT_EQ(std::get<std::string>(context(R"(["b","c"])", 1)), "c");
  EXPECT_EQ(std::get<TokenIds>(context("[[3],[4,5]]", 1)), (TokenIds{4, 5}));
  EXPECT_EQ(read(kCompletionsUrl, R"({"n":2,"prompt":["b","c"]})").at(1).first_repeat, 2);
  EXPECT_EQ(fault_of(kCompletionsUrl, R"({"prompt":[]})"), "wrong_type");
  EXPECT_EQ(fault_of(kCompletionsUrl, R"({"prompt":["b",3]})"), "wrong_type");
  EXPECT_EQ(fault_of(kCompletionsUrl, R"({"prompt":[[3],"b"]})"), "wrong_type");
  EXPECT_EQ(fault_of(kCompletionsUrl, R"({"prompt":[1024]})"), "wrong_type");
  EXPECT_EQ(fault_of(kCompletionsUrl, "{}"), "missing_field");
}

TEST(OpenAiRequest, PassesWhatItDoesNotImplementOnlyWhenItChangesNothing) {
  for (const char* neutral :
       {R"("stream":false)", R"("stream":null)", R"("presence_penalty":0.0)", R"("logit_bias":{})",
        R"("frequency_penalty":-0.0)", R"("echo":false)", R"("suffix":"")", R"("best_of":1)", R"("best_of":3,"n":3)",
        R"("user":"u","metadata":{"a":"b"},"store":true)"}) {
    EXPECT_EQ(failure_of(kCompletionsUrl, completion(std::string(",") + neutral)), "none") << neutral;
  }
  for (const char* other : {R"("stream":true)", R"("presence_penalty":0.1)", R"("logit_bias":{"5":1})",
                            R"("echo":true)", R"("suffix":"x")", R"("best_of":2)", R"("stream_options":{})"}) {
    EXPECT_EQ(failure_of(kCompletionsUrl, completion(std::string(",") + other)), "unsupported_parameter") << other;
  }
  EXPECT_EQ(failure_of(kChatUrl, chat(R"(,"parallel_tool_calls":true,"modalities":["text"],"functions":[])")), "none");
  EXPECT_EQ(failure_of(kChatUrl, chat(R"(,"parallel_tool_calls":false)")), "unsupported_parameter");
  EXPECT_EQ(failure_of(kChatUrl, chat(R"(,"audio":{})")), "unsupported_parameter");
  EXPECT_EQ(failure_of(kChatUrl, chat(R"(,"reasoning_effort":"odd")")), "unsupported_parameter");
}

TEST(OpenAiRequest, RefusesKeysThatTheInterfaceLacks) {
  EXPECT_EQ(fault_of(kCompletionsUrl, completion(R"(,"until":["x"])")), "unknown_field");
  EXPECT_EQ(fault_of(kCompletionsUrl, completion(R"(,"messages":[])")), "unknown_field");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"prompt":"x")")), "unknown_field");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"echo":false)")), "unknown_field");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"top_logprobs":2)")), "wrong_type");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"temperature":2.5)")), "wrong_type");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"n":0)")), "wrong_type");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"model":"other")")), "model_mismatch");
  EXPECT_EQ(fault_of(kChatUrl, chat(R"(,"add_bos":true)")), "wrong_type");
}

TEST(OpenAiRequest, ShortensNoPrompt) {
  const std::string body = R"({"prompt":[3,4,5],"max_tokens":4,"max_length":)";
  EXPECT_EQ(failure_of(kCompletionsUrl, body + "6}"), "context_length_exceeded");
  EXPECT_EQ(failure_of(kCompletionsUrl, body + "7}"), "none");
  EXPECT_EQ(failure_of(kChatUrl, chat(R"(,"max_length":3)")), "context_length_exceeded");
  const Request request = read(kChatUrl, chat(R"(,"max_length":400)")).at(0);
  const std::array<std::int32_t, 1> once = {0};
  const auto job = std::get<engine::GenerateJob>(prepare_task(request, nano_context(), once).job);
  EXPECT_EQ(job.max_new_tokens, 400 - std::ssize(job.prompt));
}

// The result of a chat whose drawn text is `output`.
Json chat_result(const std::string& members, const std::string& output, engine::Finish finish = engine::Finish::eos) {
  const Request request = read(kChatUrl, chat(members)).at(0);
  const std::array<std::int32_t, 1> once = {0};
  const PreparedTask task = prepare_task(request, nano_context(), once);
  EXPECT_FALSE(task.failure) << task.failure->message;
  engine::JobResult result;
  result.generated.emplace_back();
  for (const std::int32_t id : nano_tokenizer().encode(output)) result.generated[0].tokens.push_back({id, -0.5F, {}});
  result.generated[0].finish = finish;
  return parse_json(make_records(request, task, nano_context(), once, result).at(0).text, "record", ExitCode::internal);
}

TEST(ChatAnswer, EndsTheReasoningAtTheFirstMarker) {
  const Json result = chat_result("", "one</think>two</think>three")["result"];
  EXPECT_EQ(result["reasoning"], "one");
  EXPECT_EQ(result["text"], "twothree");
  EXPECT_EQ(result["finish_reason"], "stop");
  EXPECT_FALSE(result["in_thinking"].get<bool>());
}

TEST(ChatAnswer, CountsStopsBehindTheReasoningAlone) {
  const Json result = chat_result(R"(,"stop":["X"])", "aXb</think>cXd", engine::Finish::length)["result"];
  EXPECT_EQ(result["reasoning"], "aXb");
  EXPECT_EQ(result["text"], "c");
  EXPECT_EQ(result["stop"], "X");
  EXPECT_EQ(result["finish_reason"], "stop");
}

TEST(ChatAnswer, SaysThatItEndedWhileThinking) {
  const Json record = chat_result("", "and on and on", engine::Finish::length);
  EXPECT_EQ(record["result"]["text"], "");
  EXPECT_EQ(record["result"]["reasoning"], "and on and on");
  EXPECT_TRUE(record["result"]["in_thinking"].get<bool>());
  EXPECT_EQ(record["usage"]["reasoning_tokens"], record["usage"]["completion_tokens"]);
}

constexpr const char* kTools =
    R"(,"tools":[{"type":"function","function":{"name":"f","description":"","parameters":{"type":"object","properties":{}}}}])";
constexpr const char* kCall =
    "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"x\" string=\"true\">5</｜DSML｜ "
    "parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

TEST(ChatAnswer, TakesCallsOfToolsApart) {
  const std::string off = R"(,"thinking":{"type":"disabled"})";
  Json result = chat_result(kTools + off, std::string("hello") + kCall)["result"];
  EXPECT_EQ(result["text"], "hello");
  EXPECT_TRUE(result["reasoning"].is_null());
  EXPECT_EQ(result["tool_calls"], Json::parse(R"([{"name":"f","arguments":"{\"x\": \"5\"}"}])"));
  EXPECT_EQ(result["finish_reason"], "tool_calls");
  result = chat_result(kTools, std::string("hm") + kCall)["result"];  // calls end the reasoning too
  EXPECT_EQ(result["reasoning"], "hm");
  EXPECT_FALSE(result["in_thinking"].get<bool>());
  EXPECT_EQ(result["tool_calls"].size(), 1U);
  result = chat_result(off, kCall)["result"];  // without tools it is text
  EXPECT_TRUE(result["tool_calls"].empty());
  EXPECT_EQ(result["finish_reason"], "stop");
}

TEST(OpenAiOutput, HasTheInterfacesForm) {
  const Request request = read(kChatUrl, chat(std::string(R"(,"model":"nano")") + kTools)).at(0);
  const OpenAiContext context{&nano_tokenizer(), 1796000608};
  std::vector<OpenAiAnswer> answers(1);
  answers[0].record = chat_result(kTools, std::string("hm</think>") + kCall);
  const OpenAiLine line = openai_line(request, answers, context);
  EXPECT_TRUE(line.ok);
  const Json json = Json::parse(line.text);
  EXPECT_TRUE(json["error"].is_null());
  EXPECT_EQ(json["response"]["status_code"], 200);
  const Json& body = json["response"]["body"];
  EXPECT_EQ(body["object"], "chat.completion");
  EXPECT_EQ(body["created"], 1796000608);
  EXPECT_EQ(body["model"], "nano");
  const Json& message = body["choices"][0]["message"];
  EXPECT_TRUE(message["content"].is_null());
  EXPECT_EQ(message["reasoning_content"], "hm");
  EXPECT_EQ(message["tool_calls"][0]["function"]["arguments"], R"({"x": "5"})");
  EXPECT_EQ(body["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(body["usage"]["total_tokens"].get<int>(),
            body["usage"]["prompt_tokens"].get<int>() + body["usage"]["completion_tokens"].get<int>());
  EXPECT_EQ(openai_line(request, answers, context).text, line.text);
}

TEST(OpenAiOutput, CountsAPromptOnceForAllItsAnswers) {
  const Request request = read(kCompletionsUrl, R"({"prompt":["a","b"],"n":2})").at(0);
  std::vector<OpenAiAnswer> answers;
  answers.reserve(4);
  for (std::int32_t i = 0; i < 4; ++i) {
    answers.push_back({i, Json::parse(R"({"ok":true,"result":{"text":"x","finish_reason":"length"},)"
                                      R"("usage":{"prompt_tokens":10,"completion_tokens":3,"reasoning_tokens":0}})")});
  }
  const Json usage =
      Json::parse(openai_line(request, answers, {&nano_tokenizer(), 0}).text)["response"]["body"]["usage"];
  EXPECT_EQ(usage["prompt_tokens"], 20);
  EXPECT_EQ(usage["completion_tokens"], 12);
}

TEST(OpenAiOutput, IsAnErrorWhereAnAnswerFailed) {
  const Request request = read(kCompletionsUrl, completion(R"(,"n":2)")).at(0);
  std::vector<OpenAiAnswer> answers(2);
  answers[0].record = Json::parse(R"({"ok":true,"result":{"text":"x","finish_reason":"stop"},"usage":{}})");
  answers[1].record = Json::parse(R"({"ok":false,"error":{"code":"does_not_fit","message":"m"}})");
  const OpenAiLine line = openai_line(request, answers, {&nano_tokenizer(), 0});
  EXPECT_FALSE(line.ok);
  const Json json = Json::parse(line.text);
  EXPECT_EQ(json["response"]["status_code"], 500);
  EXPECT_EQ(json["error"]["code"], "does_not_fit");
}

TEST(OpenAiOutput, ReadsTheTimeOfTheFirstStart) {
  EXPECT_EQ(unix_seconds("2026-11-30T01:03:28Z"), 1796000608);
  EXPECT_EQ(unix_seconds("yesterday"), 0);
}

TEST(OpenAiJournal, FindsTheAnswersOfEachPrompt) {
  bathys::test::TempFolder folder;
  const std::vector<Request> requests = read(kCompletionsUrl, R"({"prompt":["a","b","c"],"n":2})");
  {
    JournalWriter writer(folder.path(), {1, "t", 1, "", 0}, 0);
    const std::array<std::int32_t, 1> second = {1};
    const PreparedTask task = prepare_task(requests[2], nano_context(), second);
    engine::JobResult result;
    result.generated.emplace_back();
    result.generated[0].repeat = std::get<engine::GenerateJob>(task.job).repeats.at(0);
    EXPECT_EQ(result.generated[0].repeat, 5);
    for (const Record& record : make_records(requests[2], task, nano_context(), second, result)) {
      EXPECT_EQ(record.repeat, 1);
      writer.append(record, R"({"seconds":0.5})");
    }
  }
  RecordTable table(requests);
  table.read(folder.path());
  EXPECT_EQ(table.n_wanted(), 6);
  EXPECT_EQ(table.n_present(), 1);
  EXPECT_TRUE(table.at(2, 1).present());
  for (const std::int32_t repeat : {0, 1}) EXPECT_FALSE(table.at(1, repeat).present());
}

}  // namespace
}  // namespace bathys::eval
