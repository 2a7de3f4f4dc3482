// SPDX-License-Identifier: Apache-2.0
#include "eval/text_cut.hpp"

#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

TEST(CutAtStops, CutsAtTheFirstOccurrenceOfEachInListOrder) {
  EXPECT_EQ(cut_at_stops("one, two, three", {", "}).text, "one");
  const CutText both = cut_at_stops("abcdef", {"e", "b"});
  EXPECT_EQ(both.text, "a");
  EXPECT_EQ(both.stop, "b");
  // The later stop is looked for in what is left.
  const CutText left = cut_at_stops("abcdef", {"b", "e"});
  EXPECT_EQ(left.text, "a");
  EXPECT_EQ(left.stop, "b");
}

TEST(CutAtStops, LeavesATextWithoutStopsAlone) {
  const CutText text = cut_at_stops("abc", {"x", ""});
  EXPECT_EQ(text.text, "abc");
  EXPECT_FALSE(text.stop);
}

TEST(SplitThought, TakesWhatFollowsTheLastMarker) {
  const Thought thought = split_thought("a</t>b</t>\n c", "</t>");
  EXPECT_EQ(thought.text, "c");
  EXPECT_EQ(thought.reasoning, "a</t>b");
  EXPECT_EQ(thought.reasoning_bytes, 10U);
  EXPECT_FALSE(thought.in_thinking);
}

TEST(SplitThought, ReturnsRawReasoningWithoutAMarker) {
  const Thought thought = split_thought(" still thinking", "</t>");
  EXPECT_EQ(thought.text, " still thinking");
  EXPECT_FALSE(thought.reasoning);
  EXPECT_TRUE(thought.in_thinking);
}

}  // namespace
}  // namespace bathys::eval
