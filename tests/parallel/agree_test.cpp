// SPDX-License-Identifier: Apache-2.0
#include "parallel/agree.hpp"

#include <stdexcept>
#include <string>

#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

class AgreeTest : public ::testing::Test {
 protected:
  std::unique_ptr<Collectives> world_ = make_world_collectives();
  int rank_ = world_->rank();
  int size_ = world_->size();

  // What every rank is told when `work` is run at a gate; empty when it passed.
  template <class Work>
  std::string outcome(Work&& work, ExitCode expected) {
    try {
      agree(*world_, work);
    } catch (const AgreedError& error) {
      EXPECT_EQ(error.code(), expected);
      return error.what();
    }
    return {};
  }
};

TEST_F(AgreeTest, AGateThatAllPassReturnsEachRanksOwnResult) {
  EXPECT_EQ(agree(*world_, [&] { return std::string("of ") + std::to_string(rank_); }), "of " + std::to_string(rank_));
  EXPECT_EQ(outcome([] {}, ExitCode::ok), "");
}

TEST_F(AgreeTest, OneFailingRankStopsAllWithItsWordsAndCode) {
  for (int failing = 0; failing < size_; ++failing) {
    const std::string told =
        outcome([&] { require(rank_ != failing, ExitCode::bad_input, "shard_{:02d}.h5 is truncated", failing); },
                ExitCode::bad_input);
    const std::string words = fmt::format("shard_{:02d}.h5 is truncated", failing);
    EXPECT_EQ(told, size_ == 1 ? words : fmt::format("rank {}: {}", failing, words));
  }
}

TEST_F(AgreeTest, TheLowestOfSeveralFailingRanksSpeaks) {
  if (size_ < 3) return;
  EXPECT_EQ(outcome([&] { require(rank_ == 0, ExitCode::usage, "told by {}", rank_); }, ExitCode::usage),
            "rank 1: told by 1");
}

TEST_F(AgreeTest, AFaultThatAllRanksSeeNamesNoRank) {
  EXPECT_EQ(outcome([] { fail(ExitCode::usage, "--threads abc is no number"); }, ExitCode::usage),
            "--threads abc is no number");
}

TEST_F(AgreeTest, AnAgreedErrorPassesAnOuterGateUnchanged) {
  const auto inner = [&] { agree(*world_, [&] { require(rank_ != size_ - 1, ExitCode::bad_requests, "line 3"); }); };
  EXPECT_EQ(outcome(inner, ExitCode::bad_requests), size_ == 1 ? "line 3" : fmt::format("rank {}: line 3", size_ - 1));
}

TEST_F(AgreeTest, ForeignExceptionsBecomeInternalErrors) {
  EXPECT_EQ(outcome([] { throw std::runtime_error("odd"); }, ExitCode::internal), "internal error: odd");
  EXPECT_NE(outcome([] { throw std::bad_alloc(); }, ExitCode::internal).find("out of memory"), std::string::npos);
  EXPECT_NE(outcome([] { throw 3; }, ExitCode::internal), "");
}

}  // namespace
}  // namespace bathys::parallel
