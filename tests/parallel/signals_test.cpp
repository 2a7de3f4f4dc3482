// SPDX-License-Identifier: Apache-2.0
#include "parallel/signals.hpp"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

TEST(Signals, AStopSignalSetsTheFlagAndNothingElse) {
  install_signal_handlers();
  for (const int signal : {SIGTERM, SIGUSR1}) {
    clear_stop_request();
    EXPECT_FALSE(stop_requested());
    std::raise(signal);
    EXPECT_TRUE(stop_requested());
    std::raise(signal);
    EXPECT_TRUE(stop_requested());
  }
  clear_stop_request();
  std::raise(SIGXFSZ);
  std::raise(SIGPIPE);
  EXPECT_FALSE(stop_requested());
}

TEST(Signals, ASecondInterruptEndsTheProcess) {
  EXPECT_EXIT(
      {
        install_signal_handlers();
        std::raise(SIGINT);
        if (!stop_requested()) std::_Exit(1);
        std::raise(SIGINT);
        std::_Exit(2);
      },
      ::testing::KilledBySignal(SIGINT), "");
}

}  // namespace
}  // namespace bathys::parallel
