// SPDX-License-Identifier: Apache-2.0
#include "parallel/lead.hpp"

#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "parallel/node_board.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <chrono>
#include <csignal>
#include <string>
#include <thread>

#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

constexpr double kLimit_s = 0.05;  // so 0.6 s until a rank that waits for files is taken for stuck

class LeadTest : public ::testing::Test {
 protected:
  // Works for several of the watchdog's limits, in small pieces.
  static void work_long(const Pulse& pulse) {
    for (int i = 0; i < 60; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      beat(pulse);
    }
  }
  std::unique_ptr<NodeBoard> board_ = NodeBoard::over_node();
  std::unique_ptr<Collectives> world_ = make_world_collectives({.board = board_.get()});
};

// A rank that the watchdog takes for stuck ends the whole test with 70.
TEST_F(LeadTest, NoRankCountsAsStuckWhileTheFirstWorks) {
  Watchdog watchdog(*board_, kLimit_s, false);
  int worked = 0;
  lead(*world_, &watchdog, "long work", [&](const Pulse& pulse) {
    work_long(pulse);
    ++worked;
  });
  EXPECT_EQ(worked, world_->rank() == 0 ? 1 : 0);
  EXPECT_EQ(world_->all_reduce_host(worked, Reduce::sum), 1);
}

TEST_F(LeadTest, AnErrorOfTheFirstRankIsThrownOnAll) {
  for (const bool after_pulses : {false, true}) {
    Watchdog watchdog(*board_, kLimit_s, false);
    try {
      lead(*world_, &watchdog, "work that fails", [&](const Pulse& pulse) {
        if (after_pulses) work_long(pulse);
        fail(ExitCode::bad_input, "a file is damaged");
      });
      ADD_FAILURE() << "nothing was thrown";
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_NE(std::string(error.what()).find("a file is damaged"), std::string::npos);
    }
  }
}

TEST_F(LeadTest, AStopAskedOfAnyRankIsHeardByAll) {
  install_signal_handlers();
  for (int asked = 0; asked < world_->size(); ++asked) {
    clear_stop_request();
    world_->barrier();
    if (world_->rank() == asked) std::raise(SIGTERM);
    int heard = 0;
    lead(*world_, nullptr, "long work", [&](const Pulse& pulse) {
      const Timer since;
      while (!stop_requested() && since.seconds() < 20) beat(pulse);
      heard = stop_requested() ? 1 : 0;
    });
    EXPECT_EQ(world_->all_reduce_host(heard, Reduce::sum), 1);
    EXPECT_TRUE(stop_requested());
  }
  clear_stop_request();
}

TEST_F(LeadTest, WorksWithoutAWatchdog) {
  int worked = 0;
  lead(*world_, nullptr, "work", [&](const Pulse& pulse) {
    beat(pulse);
    ++worked;
  });
  EXPECT_EQ(world_->all_reduce_host(worked, Reduce::sum), 1);
}

TEST_F(LeadTest, APulseOfOnesOwnCountsAsProgress) {
  Watchdog watchdog(*board_, kLimit_s, false);
  work_long(pulse_of(&watchdog, "own work"));
  EXPECT_FALSE(pulse_of(nullptr, "own work"));
}

}  // namespace
}  // namespace bathys::parallel
