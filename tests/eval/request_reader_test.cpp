// SPDX-License-Identifier: Apache-2.0
#include "eval/request_reader.hpp"

#include "eval/support.hpp"
#include "io/hash.hpp"

#include <string>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using test::line;
using test::read;

// The fault code of a file of one bad line.
std::string code_of(const std::string& text) {
  const RequestFile file = read(text);
  return file.faults.size() == 1 ? file.faults.front().code : "no single fault";
}

TEST(RequestReader, ReadsEveryFieldOfALoglikelihood) {
  const std::string text = R"({"custom_id":"q","method":"POST","url":"bathys:loglikelihood","meta":[1e400],)"
                           R"("body":{"context":"a","continuations":["b","c"],"gold":1,"token_logprobs":true,)"
                           R"("seed":9223372036854775807,"max_length":7,"add_bos":true,"task":"t","model":"nano"}})";
  const RequestFile file = read(text + "\n");
  ASSERT_TRUE(file.faults.empty()) << file.faults.front().text();
  const Request& request = file.requests.at(0);
  EXPECT_EQ(request.custom_id, "q");
  EXPECT_EQ(request.sha256, io::sha256_hex(text));
  EXPECT_EQ(request.meta, "[1e400]");
  EXPECT_EQ(request.task, "t");
  EXPECT_EQ(request.seed, 9223372036854775807U);
  EXPECT_EQ(request.max_length, 7);
  EXPECT_TRUE(request.add_bos);
  const auto& body = std::get<Loglikelihood>(request.body);
  EXPECT_EQ(std::get<std::string>(body.context), "a");
  EXPECT_EQ(std::get<std::vector<std::string>>(body.continuations), (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(body.gold, 1);
  EXPECT_TRUE(body.token_logprobs);
}

TEST(RequestReader, FillsInTheRunsDefaults) {
  const RequestFile file = read(line("generate_until", R"({"context":"a"})"));
  const Request& request = file.requests.at(0);
  EXPECT_EQ(request.seed, 5U);
  EXPECT_EQ(request.max_length, 4096);
  EXPECT_EQ(request.meta, "null");
  const auto& body = std::get<Generate>(request.body);
  EXPECT_EQ(body.max_gen_toks, 256);
  EXPECT_EQ(body.temperature, 0);
  EXPECT_EQ(body.repeats, 1);
  EXPECT_FALSE(body.think_end);
}

TEST(RequestReader, TakesTheFirstNameOfTheLengthInItsOwnOrder) {
  const auto length = [](const std::string& members) {
    const RequestFile file = read(line("generate_until", R"({"context":"a",)" + members + "}"));
    return std::get<Generate>(file.requests.at(0).body).max_gen_toks;
  };
  EXPECT_EQ(length(R"("max_completion_tokens":4,"max_tokens":3)"), 3);
  EXPECT_EQ(length(R"("max_tokens":3,"max_new_tokens":2,"max_gen_toks":1)"), 1);
}

TEST(RequestReader, SamplesOnlyWhenAskedTo) {
  const auto temperature = [](const std::string& members) {
    const RequestFile file = read(line("generate_until", R"({"context":"a",)" + members + "}"));
    return std::get<Generate>(file.requests.at(0).body).temperature;
  };
  EXPECT_EQ(temperature(R"("temperature":0.5)"), 0.5);
  EXPECT_EQ(temperature(R"("temperature":0.5,"do_sample":false)"), 0);
  EXPECT_EQ(temperature(R"("temperature":0,"do_sample":true)"), 0);
  const auto warning = [](const std::string& members) {
    return oversights(read(line("generate_until", R"({"context":"a",)" + members + "}")));
  };
  EXPECT_EQ(warning(R"("temperature":0.5,"do_sample":true)"), "");
  EXPECT_EQ(warning(R"("do_sample":false)"), "");
  EXPECT_EQ(warning(R"("do_sample":true)"), "1 requests have do_sample true and temperature 0: they are greedy");
}

TEST(RequestReader, ThinksInChatsUnlessToldOtherwise) {
  const auto marker = [](const std::string& members) {
    const RequestFile file =
        read(line("generate_until", R"({"messages":[{"role":"user","content":"x"}])" + members + "}"));
    return std::get<Generate>(file.requests.at(0).body).think_end;
  };
  EXPECT_EQ(marker(""), "</think>");
  EXPECT_EQ(marker(R"(,"thinking":false)"), std::nullopt);
  EXPECT_EQ(marker(R"(,"thinking":{"type":"disabled"})"), std::nullopt);
  EXPECT_EQ(marker(R"(,"think_end":"END")"), "END");
}

TEST(RequestReader, NamesTheKindOfEachFault) {
  EXPECT_EQ(code_of(""), "empty_file");
  EXPECT_EQ(code_of("\n \t\n"), "empty_file");
  EXPECT_EQ(code_of("{\n"), "invalid_json_line");
  const std::string good = line("loglikelihood_rolling", R"({"text":"x"})");
  EXPECT_EQ(code_of(good), "no single fault");
  EXPECT_EQ(code_of(good.substr(0, good.rfind('}') + 1) + std::string("\0", 1) + good), "invalid_json_line");
  EXPECT_EQ(code_of("\"\xff\"\n"), "invalid_utf8");
  EXPECT_EQ(code_of("[]\n"), "wrong_type");
  EXPECT_EQ(code_of("{}\n"), "missing_field");
  EXPECT_EQ(code_of(line("rolling", "{}")), "url_mismatch");
  EXPECT_EQ(code_of(R"({"custom_id":"a","url":"/v1/embeddings","body":{}})"), "url_mismatch");
  EXPECT_EQ(code_of(line("loglikelihood_rolling", R"({"text":"x","model":"other"})")), "model_mismatch");
  EXPECT_EQ(
      code_of(line("loglikelihood_rolling", R"({"text":"x"})") + line("loglikelihood_rolling", R"({"text":"y"})")),
      "duplicate_custom_id");
}

TEST(RequestReader, RefusesWhatABodyCannotHold) {
  const std::pair<const char*, const char*> bodies[] = {
      {R"({})", "missing_field"},
      {R"({"text":"x","ids":[3]})", "unknown_field"},
      {R"({"text":7})", "wrong_type"},
      {R"({"ids":[1024]})", "wrong_type"},
      {R"({"ids":[1.0]})", "wrong_type"},
      {R"({"text":"x","txet":"y"})", "unknown_field"},
      {R"({"text":"x","max_length":4097})", "wrong_type"},
      {R"({"text":"x","max_length":0})", "wrong_type"},
      {R"({"text":"x","add_bos":1})", "wrong_type"},
      {R"({"text":"x","token_logprobs":"yes"})", "wrong_type"},
  };
  for (const auto& [body, code] : bodies) EXPECT_EQ(code_of(line("loglikelihood_rolling", body)), code) << body;
}

TEST(RequestReader, RefusesWhatAGenerationCannotBe) {
  for (const char* members :
       {R"("top_p":0)", R"("top_p":1.5)", R"("repeats":0)", R"("top_logprobs":21)", R"("until":[1])",
        R"("temperature":-1)", R"("max_tokens":1e3)", R"("think_end":"")", R"("gold":5)"}) {
    const std::string body = std::string(R"({"context":"a",)") + members + "}";
    EXPECT_EQ(code_of(line("generate_until", body)), "wrong_type") << members;
  }
  EXPECT_EQ(code_of(line("generate_until", R"({"messages":[],"add_bos":true})")), "wrong_type");
  EXPECT_EQ(code_of(line("generate_until", R"({"context":"a","thinking":true})")), "unknown_field");
}

TEST(RequestReader, RefusesAGoldThatIsNoContinuation) {
  EXPECT_EQ(code_of(line("loglikelihood", R"({"context":"a","continuations":["b"],"gold":1})")), "wrong_type");
  EXPECT_EQ(code_of(line("loglikelihood", R"({"context":"a","continuations":[]})")), "wrong_type");
}

TEST(RequestReader, CountsLinesByLineFeedsAndKeepsCarriageReturns) {
  const std::string body = R"({"text":"x"})";
  const std::string plain = line("loglikelihood_rolling", body, "a");
  const std::string first = plain.substr(0, plain.size() - 1) + "\r\n";
  const RequestFile file = read("\xef\xbb\xbf\n" + first + "\n\n" + line("loglikelihood_rolling", body, "b"));
  ASSERT_TRUE(file.faults.empty()) << file.faults.front().text();
  EXPECT_EQ(file.requests.at(0).line, 2);
  EXPECT_EQ(file.requests.at(1).line, 5);
  EXPECT_EQ(file.requests.at(0).sha256, io::sha256_hex(first.substr(0, first.size() - 1)));
}

TEST(RequestReader, ListsAHundredFaultsAtMost) {
  std::string text;
  for (int n = 0; n < 300; ++n) text += "{}\n";
  const RequestFile file = read(text);
  EXPECT_EQ(file.faults.size(), 100U);
  EXPECT_EQ(file.faults.back().text(), "line 100: missing_field: custom_id is missing");
}

TEST(RequestReader, SurvivesEveryCutOfAFile) {
  const std::string text =
      line("loglikelihood", R"({"context":"a é \u00e9","continuations":["b"],"gold":0})") +
      line("generate_until", R"({"messages":[{"role":"user","content":"x"}],"until":["\n"]})", "b");
  for (std::size_t n = 0; n < text.size(); ++n) {
    const RequestFile file = read(text.substr(0, n));
    EXPECT_LE(file.requests.size(), 2U);
  }
}

}  // namespace
}  // namespace bathys::eval
