// SPDX-License-Identifier: Apache-2.0
#include "eval/scores.hpp"

#include "eval/support.hpp"

#include <cmath>
#include <numbers>
#include <string>

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using test::line;

TEST(MeanScore, IsUndefinedForNoItemsAndHasNoErrorForOne) {
  MeanScore score;
  EXPECT_FALSE(score.score("s").value);
  score.add(3);
  EXPECT_EQ(score.score("s").value, 3);
  EXPECT_FALSE(score.score("s").standard_error);
}

TEST(MeanScore, HasTheErrorOfAMean) {
  MeanScore score;
  for (const double value : {1.0, 0.0, 1.0, 1.0}) score.add(value);
  EXPECT_DOUBLE_EQ(*score.score("s").value, 0.75);
  EXPECT_DOUBLE_EQ(*score.score("s").standard_error, 0.25);  // sqrt(0.25 / 4), deviation with n - 1
}

TEST(RatioScore, WeighsDocumentsByTheirLength) {
  RatioScore score;
  score.add(-6, 3);
  score.add(-2, 1);
  EXPECT_DOUBLE_EQ(*score.perplexity("p").value, std::exp(2));
  EXPECT_DOUBLE_EQ(*score.bits_per_unit("b").value, 2 / std::numbers::ln2);
  EXPECT_NEAR(*score.perplexity("p").standard_error, 0, 1e-9);  // the same ratio everywhere
  score.add(-9, 2);
  // Ratio 17/6; residuals 6 - 8.5, 2 - 2.8333, 9 - 5.6667; error sqrt(3/2 * sum of squares) / 6.
  const double error = std::sqrt(1.5 * (2.5 * 2.5 + 5.0 / 6 * 5 / 6 + 10.0 / 3 * 10 / 3)) / 6;
  EXPECT_NEAR(*score.bits_per_unit("b").standard_error, error / std::numbers::ln2, 1e-12);
}

Score find(const RunScores& scores, const std::string& task, const std::string& name) {
  for (const auto& [known, list] : scores.tasks()) {
    for (const Score& score : list) {
      if (known == task && score.name == name) return score;
    }
  }
  ADD_FAILURE() << task << " has no " << name;
  return {};
}

TEST(RunScores, JudgesChoicesByTheirSumPerCharacterAndPerByte) {
  const Request request =
      test::read(line("loglikelihood", R"({"context":"a","continuations":["éé","abcdef"],"gold":0,"task":"t"})"))
          .requests.at(0);
  RunScores scores(nullptr);
  scores.announce(request);
  // Sums: the first wins; per character (2, 6) the second; per byte (4, 6) the second: -1 against -0.5.
  scores.add(request,
             parse_json(R"({"ok":true,"result":{"logprob":[-2.0,-3.0],"is_greedy":[true,false],"n_tokens":[2,3],)"
                        R"("truncated":[0,4]},"usage":{"prompt_tokens":1,"completion_tokens":5,"reasoning_tokens":0}})",
                        "record", ExitCode::internal));
  EXPECT_EQ(find(scores, "t", "acc").value, 1);
  EXPECT_EQ(find(scores, "t", "acc_norm").value, 0);
  EXPECT_EQ(find(scores, "t", "acc_bytes").value, 1);
  EXPECT_EQ(find(scores, "t", "exact_match").value, 1);
  EXPECT_EQ(scores.totals().scored_tokens, 5);
  EXPECT_EQ(scores.totals().truncated, 1);
}

TEST(RunScores, ListsATaskOfWhichNothingSucceeded) {
  const Request request = test::read(line("loglikelihood_rolling", R"({"text":"x","task":"t"})")).requests.at(0);
  RunScores scores(nullptr);
  scores.announce(request);
  scores.add(request, parse_json(R"({"ok":false,"error":{"code":"does_not_fit"},)"
                                 R"("usage":{"prompt_tokens":0,"completion_tokens":0,"reasoning_tokens":0}})",
                                 "record", ExitCode::internal));
  EXPECT_EQ(find(scores, "t", "word_perplexity").n, 0);
  EXPECT_FALSE(find(scores, "t", "word_perplexity").value);
  EXPECT_EQ(scores.totals().failed_by_code.at("does_not_fit"), 1);
}

}  // namespace
}  // namespace bathys::eval
