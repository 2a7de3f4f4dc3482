// SPDX-License-Identifier: Apache-2.0
// Which beginnings are shared, and by whom: tokens and positions only.
#include "engine/prefix_tree.hpp"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::engine {
namespace {

class Planted : public ::testing::Test {
 protected:
  // A waiting sequence: `head` tokens of one value each, then `own` tokens of `tail`, of which the last is scored.
  Track& plant(std::uint64_t job, const std::vector<std::pair<std::int32_t, int>>& runs, std::int64_t wanted_from) {
    JobState& state = *jobs_.emplace_back(std::make_unique<JobState>());
    state.number = job;
    Track& track = *state.tracks.emplace_back(std::make_unique<Track>());
    track.job = &state;
    for (const auto& [token, n] : runs) track.tokens.insert(track.tokens.end(), static_cast<std::size_t>(n), token);
    track.end = static_cast<std::int64_t>(track.tokens.size()) - 1;
    track.first_wanted = track.wanted_from = wanted_from;
    tree_.insert(track);
    return track;
  }
  PrefixTree tree_;
  std::vector<std::unique_ptr<JobState>> jobs_;
};

TEST_F(Planted, ALoneSequenceSharesNothing) { EXPECT_EQ(plant(1, {{5, 40}}, 30).node, &tree_.root()); }

TEST_F(Planted, TwoMeetAtTheirCommonBeginningAndAThirdBranchesAboveThem) {
  Track& a = plant(1, {{5, 20}, {6, 20}, {1, 9}}, 44);
  Track& b = plant(1, {{5, 20}, {6, 20}, {2, 9}}, 43);
  ASSERT_EQ(a.node, b.node);
  EXPECT_EQ(a.node->end(), 40);
  EXPECT_EQ(a.node->track.first_wanted, 43);  // the union of both cones
  EXPECT_FALSE(a.node->many_jobs);
  Track& c = plant(2, {{5, 20}, {7, 20}}, 38);
  EXPECT_EQ(c.node->end(), 20);
  EXPECT_EQ(a.node->parent, c.node);
  EXPECT_EQ(c.node->track.first_wanted, 38);
  EXPECT_TRUE(c.node->many_jobs);
  EXPECT_TRUE(leads_to(*c.node, *a.node));
  EXPECT_FALSE(leads_to(*a.node, *c.node));
}

TEST_F(Planted, WantedRowsAndShortBeginningsAreNotShared) {
  Track& a = plant(1, {{5, 20}, {1, 5}}, 10);
  Track& b = plant(2, {{5, 20}, {2, 5}}, 22);
  EXPECT_EQ(a.node, b.node);
  EXPECT_EQ(a.node->end(), 10);
  Track& c = plant(3, {{9, static_cast<int>(PrefixTree::kMinShared) - 1}, {1, 9}}, 12);
  Track& d = plant(4, {{9, static_cast<int>(PrefixTree::kMinShared) - 1}, {2, 9}}, 12);
  EXPECT_EQ(c.node, &tree_.root());
  EXPECT_EQ(d.node, &tree_.root());
}

TEST_F(Planted, ANodeThatRunsServesOnlyThoseWhoseConeItHolds) {
  Track& a = plant(1, {{5, 20}, {1, 9}}, 25);
  plant(2, {{5, 20}, {2, 9}}, 26);
  PrefixNode& node = *a.node;
  node.state = PrefixNode::State::running;
  EXPECT_EQ(plant(3, {{5, 20}, {3, 9}}, 25).node, &node);
  EXPECT_EQ(plant(4, {{5, 20}, {3, 9}}, 24).node, &tree_.root());
  const Track& short_one = plant(5, {{5, 12}, {4, 20}}, 28);
  EXPECT_NE(short_one.node, &node);  // which cannot be cut any more; it meets the one before it
  EXPECT_EQ(short_one.node->end(), 12);
  EXPECT_EQ(node.track.first_wanted, 25);
}

TEST_F(Planted, DetachingTheLastTakesPlannedNodesWithIt) {
  Track& a = plant(1, {{5, 20}, {1, 9}}, 25);
  Track& b = plant(2, {{5, 20}, {2, 9}}, 25);
  tree_.detach(a);
  EXPECT_EQ(a.node, &tree_.root());
  EXPECT_EQ(tree_.root().children.size(), 1U);
  tree_.detach(b);
  EXPECT_TRUE(tree_.root().children.empty());
  // And they are not put together again.
  EXPECT_EQ(plant(3, {{5, 20}, {3, 9}}, 25).node, &tree_.root());
}

TEST_F(Planted, DissolvingANodeFreesAllBelowIt) {
  Track& a = plant(1, {{5, 20}, {6, 20}, {1, 9}}, 44);
  plant(1, {{5, 20}, {6, 20}, {2, 9}}, 44);
  Track& c = plant(2, {{5, 20}, {7, 20}}, 38);
  tree_.dissolve(*c.node);
  EXPECT_EQ(a.node, &tree_.root());
  EXPECT_TRUE(a.alone);
  EXPECT_TRUE(tree_.root().children.empty());
  EXPECT_EQ(tree_.root().waiting.size(), 3U);
}

TEST_F(Planted, OnlyNodesThatNothingNeedsAreIdle) {
  Track& a = plant(1, {{5, 20}, {1, 9}}, 25);
  Track& b = plant(2, {{5, 20}, {2, 9}}, 25);
  PrefixNode& node = *a.node;
  node.state = PrefixNode::State::ready;
  EXPECT_EQ(tree_.oldest_idle(tree_.root()), nullptr);
  EXPECT_EQ(tree_.unused(tree_.root()), &node);
  EXPECT_EQ(tree_.unused(node), nullptr);
  tree_.remove(a);
  ++node.users;
  tree_.remove(b);
  EXPECT_EQ(tree_.unused(tree_.root()), nullptr);
  --node.users;
  EXPECT_EQ(tree_.oldest_idle(tree_.root()), &node);
  EXPECT_EQ(tree_.oldest_idle(node), nullptr);
}

TEST_F(Planted, CountsWhatGivingUpWouldFreeAndTakesNothing) {
  Track& a = plant(1, {{5, 20}, {6, 20}, {1, 9}}, 44);
  Track& b = plant(1, {{5, 20}, {6, 20}, {2, 9}}, 43);
  Track& c = plant(2, {{5, 20}, {7, 20}}, 38);
  PrefixNode& lower = *a.node;
  PrefixNode& upper = *c.node;
  upper.track.room = {1, 100};
  lower.track.room = {1, 10};
  const auto freed = [&](const PrefixNode& keep, bool also_unused) {
    return tree_.reclaimable(keep, also_unused).pages;
  };
  EXPECT_EQ(freed(tree_.root(), true), 0);  // nothing has run
  upper.state = lower.state = PrefixNode::State::ready;
  upper.users = 1;                           // the lower one
  EXPECT_EQ(freed(tree_.root(), false), 0);  // all wait
  EXPECT_EQ(freed(tree_.root(), true), 110);
  EXPECT_EQ(freed(upper, true), 10);
  EXPECT_EQ(freed(lower, true), 0);
  tree_.remove(a);
  tree_.remove(b);
  EXPECT_EQ(freed(tree_.root(), false), 10);  // c waits at the upper one
  tree_.remove(c);
  EXPECT_EQ(freed(tree_.root(), false), 110);
  EXPECT_EQ(tree_.reclaimable(tree_.root(), false).states, 2);
  EXPECT_EQ(freed(lower, false), 0);
  ++lower.users;  // a track
  EXPECT_EQ(freed(tree_.root(), true), 0);
  EXPECT_EQ(upper.children.size(), 1U);
}

}  // namespace
}  // namespace bathys::engine
