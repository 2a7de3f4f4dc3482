// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog.hpp"

#include "parallel/node_board.hpp"

#include <chrono>
#include <string>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

using ::testing::HasSubstr;

TEST(NodeBoard, OneRankHasTheLastWord) {
  const auto board = NodeBoard::alone();
  EXPECT_TRUE(board->claim_last_word());
  EXPECT_FALSE(board->claim_last_word());
}

TEST(NodeBoard, TextsAreCutAtTheirRoom) {
  SharedText<2> text;
  EXPECT_EQ(text.get(), "");
  text.set("0123456789");
  EXPECT_EQ(text.get(), "0123456789");
  text.set("0123456789abcdefghij");
  EXPECT_EQ(text.get(), "0123456789abcdef");
  text.set("x");
  EXPECT_EQ(text.get(), "x");
}

TEST(Watchdog, ProgressKeepsTheProcessAliveAndItsLineNamesThePhase) {
  const auto board = NodeBoard::alone();
  Watchdog watchdog(*board, 0.5, false);
  for (int i = 0; i < 12; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    watchdog.progress("step " + std::to_string(i), Pace::compute);
  }
  const std::string line = describe_stuck(*board, "no progress for 1.2 s (watchdog limit 0.5 s)", 0.5);
  EXPECT_THAT(line, HasSubstr("no progress for 1.2 s (watchdog limit 0.5 s) on host"));
  EXPECT_THAT(line, HasSubstr("rank 0 in \"step 11\""));
}

TEST(Watchdog, WithoutProgressTheProcessEndsWithSeventyAndOneLine) {
  EXPECT_EXIT(
      {
        const auto board = NodeBoard::alone();
        Watchdog watchdog(*board, 0.2, false);
        watchdog.progress("a loop without end", Pace::compute);
        std::this_thread::sleep_for(std::chrono::seconds(30));
      },
      ::testing::ExitedWithCode(70),
      "bathys: error: no progress.*limit 0.2 s.*a loop without end.*outside collectives");
}

TEST(Watchdog, FilesAreGivenMoreTime) {
  {
    const auto board = NodeBoard::alone();
    Watchdog watchdog(*board, 0.1, false);
    watchdog.progress("a file system that fails over");
    std::this_thread::sleep_for(std::chrono::milliseconds(700));
  }
  EXPECT_EXIT(
      {
        const auto board = NodeBoard::alone();
        Watchdog watchdog(*board, 0.05, false);
        watchdog.progress("a file that never comes");
        std::this_thread::sleep_for(std::chrono::seconds(30));
      },
      ::testing::ExitedWithCode(70), "bathys: error: no progress.*limit 0.6 s.*a file that never comes");
}

TEST(Watchdog, AProcessThatHasEndedIsNotMissed) {
  const auto board = NodeBoard::alone();
  {
    const Watchdog watchdog(*board, 0.1, false);
    EXPECT_NE(board->mine().pulse_ns.load(), 0);
  }
  EXPECT_EQ(board->mine().pulse_ns.load(), 0);
}

}  // namespace
}  // namespace bathys::parallel
