// SPDX-License-Identifier: Apache-2.0
#include "eval/finished_run.hpp"

#include "io/temp_folder.hpp"

#include <filesystem>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using bathys::test::expect_error;
using bathys::test::spit;
using bathys::test::TempFolder;

// A folder with n answers, each of which takes some hundred bytes.
class FinishedRunTest : public ::testing::Test {
 protected:
  void write(int n) {
    std::string results, scores;
    for (int i = 0; i < n; ++i) {
      results +=
          fmt::format(R"({{"custom_id":"{}","repeat":0,"request_sha256":"","ok":true,"result":{{"text":"{}"}}}})", i,
                      std::string(300, 'x')) +
          "\n";
      scores += fmt::format(R"({{"custom_id":"{}","repeat":0,"task":"","scores":{{"acc":{}}}}})", i, i % 2) + "\n";
    }
    spit(folder.path("results.jsonl"), results);
    spit(folder.path("scores.jsonl"), scores);
  }

  TempFolder folder;
};

TEST_F(FinishedRunTest, GivesBackEveryAnswerInOrderAndByItsKey) {
  write(1000);
  FinishedRun run(folder.path());
  const RunLookup lookup(run);
  EXPECT_EQ(lookup.size(), 1000);
  for (const int i : {999, 0, 500, 501, 7, 998}) {
    const auto answer = lookup.find(std::to_string(i), 0);
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->custom_id, std::to_string(i));
    EXPECT_EQ(answer->scores["acc"], i % 2);
  }
  EXPECT_FALSE(lookup.find("1000", 0));
  EXPECT_FALSE(lookup.find("1", 1));
  run.go_to({});
  for (int i = 0; i < 1000; ++i) ASSERT_EQ(run.next()->custom_id, std::to_string(i));
  EXPECT_FALSE(run.next());
}

// A file system that loses the rest of a file must not make a comparison of the first lines out of it.
TEST_F(FinishedRunTest, FilesThatEndWhileTheyAreReadAreNoShorterRun) {
  const std::string results = folder.path("results.jsonl"), scores = folder.path("scores.jsonl");
  write(500);
  const auto n_results = std::filesystem::file_size(results), n_scores = std::filesystem::file_size(scores);
  write(1000);
  FinishedRun run(folder.path());
  ASSERT_TRUE(run.next());
  std::filesystem::resize_file(results, n_results);  // after the same answer
  std::filesystem::resize_file(scores, n_scores);
  expect_error(ExitCode::bad_input, {folder.path()}, [&] {
    while (run.next()) continue;
  });
}

TEST_F(FinishedRunTest, FilesThatDoNotBelongTogetherAreRefused) {
  write(3);
  spit(folder.path("scores.jsonl"), R"({"custom_id":"0","repeat":0,"task":"","scores":{}})");  // the last needs no end
  FinishedRun run(folder.path());
  EXPECT_TRUE(run.next());
  expect_error(ExitCode::bad_input, {"scores.jsonl", "number of lines"}, [&] { run.next(); });
}

}  // namespace
}  // namespace bathys::eval
