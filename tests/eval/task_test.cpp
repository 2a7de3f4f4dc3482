// SPDX-License-Identifier: Apache-2.0
#include "eval/task.hpp"

#include "core/json.hpp"
#include "eval/support.hpp"

#include <array>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using test::line;
using test::nano_context;
using test::nano_tokenizer;

constexpr std::array<std::int32_t, 1> kOnce = {0};

Request request_of(const std::string& url, const std::string& body) {
  RequestFile file = test::read(line(url, body));
  EXPECT_TRUE(file.faults.empty()) << file.faults.front().text();
  return file.requests.at(0);
}

PreparedTask prepared(const std::string& url, const std::string& body) {
  return prepare_task(request_of(url, body), nano_context(), kOnce);
}

std::string failure_of(const std::string& url, const std::string& body) {
  const PreparedTask task = prepared(url, body);
  return task.failure ? task.failure->code : "none";
}

Json record_of(const Request& request, const engine::JobResult& result) {
  const PreparedTask task = prepare_task(request, nano_context(), kOnce);
  return parse_json(make_records(request, task, nano_context(), kOnce, result).at(0).text, "record",
                    ExitCode::internal);
}

engine::Generated generated(const std::string& text, engine::Finish finish) {
  engine::Generated out;
  for (const std::int32_t id : nano_tokenizer().encode(text)) out.tokens.push_back({id, -0.5F, {}});
  out.finish = finish;
  return out;
}

Json generated_result(const std::string& members, const std::string& text, engine::Finish finish) {
  engine::JobResult result;
  result.generated = {generated(text, finish)};
  return record_of(request_of("generate_until", R"({"context":"a")" + members + "}"), result)["result"];
}

TEST(PrepareTask, PutsBosBeforeAContextThatLacksIt) {
  const TokenIds plain = nano_tokenizer().encode("And God");
  const auto context_of = [&](const std::string& body) {
    const PreparedTask task = prepared("loglikelihood", body);
    const auto& sequence = std::get<engine::ScoreJob>(task.job).sequences.at(0);
    return TokenIds(sequence.tokens.begin(), sequence.tokens.begin() + sequence.first_scored);
  };
  TokenIds with_bos = plain;
  with_bos.insert(with_bos.begin(), 0);
  EXPECT_EQ(context_of(R"({"context":"And God","continuations":[" said"]})"), plain);
  EXPECT_EQ(context_of(R"({"context":"And God","continuations":[" said"],"add_bos":true})"), with_bos);
  EXPECT_EQ(context_of(R"({"context_ids":[0,7],"continuation_ids":[[8]],"add_bos":true})"), (TokenIds{0, 7}));
  EXPECT_EQ(context_of(R"({"context":"","continuations":["And"],"add_bos":true})"), TokenIds{0});
}

TEST(PrepareTask, DoesNotPutBosBeforeAnotherPrefixToken) {
  TaskContext context = nano_context();
  context.prefix_token = 1;
  const Request request = request_of("loglikelihood", R"({"context":"","continuations":["And"],"add_bos":true})");
  const PreparedTask task = prepare_task(request, context, kOnce);
  EXPECT_EQ(std::get<engine::ScoreJob>(task.job).sequences.at(0).tokens.front(), 1);
}

TEST(PrepareTask, FailsRequestsThatCannotBeAnswered) {
  EXPECT_EQ(failure_of("loglikelihood", R"({"context":"a","continuations":[""]})"), "empty_continuation");
  EXPECT_EQ(failure_of("loglikelihood", R"({"context_ids":[3],"continuation_ids":[[4,5,6]],"max_length":2})"),
            "continuation_too_long");
  EXPECT_EQ(failure_of("loglikelihood", R"({"context_ids":[3],"continuation_ids":[[4,5]],"max_length":2})"), "none");
  EXPECT_EQ(failure_of("generate_until", R"({"context":"a","max_gen_toks":9,"max_length":9})"),
            "context_length_exceeded");
  EXPECT_EQ(failure_of("generate_until", R"({"context":"a","max_gen_toks":9,"max_length":10})"), "none");
  EXPECT_EQ(failure_of("generate_until", R"({"messages":[{"role":"user","content":"a"}],"tools":[{}]})"),
            "unsupported_parameter");
  EXPECT_EQ(failure_of("generate_until", R"({"messages":[{"content":"a"}]})"), "invalid_messages");
}

TEST(PrepareTask, KeepsTheEndOfALongPrompt) {
  const PreparedTask task =
      prepared("generate_until", R"({"context_ids":[3,4,5,6,7],"max_gen_toks":8,"max_length":10})");
  EXPECT_EQ(std::get<engine::GenerateJob>(task.job).prompt, (std::vector<std::int32_t>{6, 7}));
}

TEST(PrepareTask, KeysNoiseByTheFirstBytesOfTheHashOfSeedAndId) {
  // SHA-256 of 01 00 00 00 00 00 00 00 61 begins ae 61: taken as a little-endian number.
  const PreparedTask task = prepared("generate_until", R"({"context":"a","seed":1})");
  const PreparedTask other = prepared("generate_until", R"({"context":"a","seed":2})");
  EXPECT_EQ(std::get<engine::GenerateJob>(task.job).key, 0xF655A58BC82161AEULL);
  EXPECT_NE(std::get<engine::GenerateJob>(other.job).key, std::get<engine::GenerateJob>(task.job).key);
}

TEST(PrepareTask, HoldsStopsBackWhileTheModelThinks) {
  const auto stops = [](const std::string& members) {
    return std::get<engine::GenerateJob>(
               prepared("generate_until", R"({"context":"a","until":["x"])" + members + "}").job)
        .stops;
  };
  EXPECT_EQ(stops(""), (std::vector<std::string>{"x", "<｜end▁of▁sentence｜>"}));
  EXPECT_TRUE(stops(R"(,"think_end":"END")").empty());
}

TEST(PrepareTask, NeedsNoJobForAnEmptyText) {
  const PreparedTask task = prepared("loglikelihood_rolling", R"({"text":""})");
  EXPECT_TRUE(std::holds_alternative<std::monostate>(task.job));
  const Json record = record_of(request_of("loglikelihood_rolling", R"({"text":""})"), {});
  EXPECT_EQ(record["result"]["logprob"], 0.0);
  EXPECT_EQ(record["result"]["n_windows"], 0);
}

TEST(MakeRecords, SumsLogprobsInDoubleAndFlagsGreedyContinuations) {
  engine::JobResult result;
  result.scores = {{{-0.1F, true}, {-0.2F, true}}, {{-3, true}, {-4, false}, {-5, true}}};
  const Json record = record_of(
      request_of("loglikelihood", R"({"context_ids":[3],"continuation_ids":[[4,5],[6,7,8]],"token_logprobs":true})"),
      result);
  EXPECT_TRUE(record["ok"].get<bool>());
  EXPECT_EQ(record["result"]["logprob"][0].get<double>(), double{-0.1F} + double{-0.2F});
  EXPECT_EQ(record["result"]["logprob"][1].get<double>(), -12);
  EXPECT_EQ(record["result"]["is_greedy"], (Json{true, false}));
  EXPECT_EQ(record["result"]["n_tokens"], (Json{2, 3}));
  EXPECT_EQ(record["result"]["truncated"], (Json{0, 0}));
  EXPECT_EQ(record["result"]["token_logprobs"][1][2].get<double>(), -5);
  EXPECT_EQ(record["usage"]["prompt_tokens"], 1);
  EXPECT_EQ(record["usage"]["completion_tokens"], 5);
}

TEST(MakeRecords, NeverWritesAValueThatIsNotFinite) {
  engine::JobResult result;
  result.scores = {{{std::numeric_limits<float>::quiet_NaN(), false}}};
  const Json record = record_of(request_of("loglikelihood", R"({"context":"a","continuations":[" b"]})"), result);
  EXPECT_FALSE(record["ok"].get<bool>());
  EXPECT_EQ(record["error"]["code"], "nonfinite_value");
}

// What one repeat drew says nothing of the others, whichever were drawn together.
TEST(MakeRecords, FailsOnlyTheRepeatWithAValueThatIsNotFinite) {
  constexpr float kNone = -std::numeric_limits<float>::infinity();
  const std::vector<std::int32_t> repeats{0, 1, 2};
  const Request request =
      request_of("generate_until", R"({"context":"a","repeats":3,"temperature":1,"top_logprobs":2})");
  engine::JobResult result;
  for (const std::int32_t repeat : repeats) {
    result.generated.push_back(generated(" and", engine::Finish::length));
    result.generated.back().repeat = repeat;
    result.generated.back().tokens[0].top = {{1, -0.5F}, {2, repeat == 1 ? kNone : -1.0F}};
  }
  result.generated[2].tokens[0].logprob = kNone;
  const PreparedTask task = prepare_task(request, nano_context(), repeats);
  const auto records = make_records(request, task, nano_context(), repeats, result);
  ASSERT_EQ(records.size(), 3U);
  EXPECT_TRUE(records[0].ok);
  for (const std::size_t failed : {1, 2}) {
    EXPECT_FALSE(records[failed].ok);
    EXPECT_EQ(Json::parse(records[failed].text)["error"]["code"], "nonfinite_value");
  }
}

TEST(MakeRecords, ReportsWhyAGenerationEnded) {
  const std::string until = R"(,"until":["the"])";
  Json result = generated_result(until, ", and the", engine::Finish::stop);
  EXPECT_EQ(result["text"], ", and ");
  EXPECT_EQ(result["stop"], "the");
  EXPECT_EQ(result["finish_reason"], "stop");
  result = generated_result(until, ", and", engine::Finish::eos);
  EXPECT_EQ(result["stop"], "eos");
  EXPECT_EQ(result["finish_reason"], "stop");
  result = generated_result(until, ", and", engine::Finish::length);
  EXPECT_TRUE(result["stop"].is_null());
  EXPECT_EQ(result["finish_reason"], "length");
}

TEST(MakeRecords, RemovesReasoningBeforeItCuts) {
  const std::string members = R"(,"think_end":" and","until":["the"],"token_ids":true)";
  const Json result = generated_result(members, "the LORD and God said the", engine::Finish::length);
  EXPECT_EQ(result["text"], "God said ");
  EXPECT_EQ(result["reasoning"], "the LORD");
  EXPECT_EQ(result["stop"], "the");
  EXPECT_EQ(result["token_ids"].size(), nano_tokenizer().encode("the LORD and God said the").size());
}

TEST(MakeRecords, CountsReasoningTokensUpToTheMarker) {
  engine::JobResult result;
  result.generated = {generated("the LORD and God", engine::Finish::eos)};
  const Json record = record_of(request_of("generate_until", R"({"context":"a","think_end":" and"})"), result);
  const auto n_reasoning = static_cast<std::int64_t>(nano_tokenizer().encode("the LORD and").size());
  EXPECT_EQ(record["usage"]["reasoning_tokens"], n_reasoning);
  EXPECT_EQ(record["usage"]["completion_tokens"],
            static_cast<std::int64_t>(nano_tokenizer().encode("the LORD and God").size()) + 1);  // EOS was drawn too
}

TEST(MakeRecords, GivesEveryRepeatItsOwnFailure) {
  const Request request =
      request_of("generate_until", R"({"context":"a","max_gen_toks":9,"max_length":9,"repeats":3})");
  const std::vector<std::int32_t> repeats = {0, 2};
  const PreparedTask task = prepare_task(request, nano_context(), repeats);
  const auto records = make_records(request, task, nano_context(), repeats, {});
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[1].repeat, 2);
  EXPECT_FALSE(records[1].ok);
}

}  // namespace
}  // namespace bathys::eval
