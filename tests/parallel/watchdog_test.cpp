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
    watchdog.progress("step " + std::to_string(i));
  }
  EXPECT_THAT(describe_stuck(*board, 1.25, 0.5), HasSubstr("no progress for 1.2 s (watchdog limit 0.5 s) on host"));
  EXPECT_THAT(describe_stuck(*board, 1.25, 0.5), HasSubstr("rank 0 in \"step 11\""));
}

TEST(Watchdog, WithoutProgressTheProcessEndsWithSeventyAndOneLine) {
  EXPECT_EXIT(
      {
        const auto board = NodeBoard::alone();
        Watchdog watchdog(*board, 0.2, false);
        watchdog.progress("a loop without end");
        std::this_thread::sleep_for(std::chrono::seconds(30));
      },
      ::testing::ExitedWithCode(70), "bathys: error: no progress.*a loop without end.*outside collectives");
}

}  // namespace
}  // namespace bathys::parallel
