// SPDX-License-Identifier: Apache-2.0
#include "engine/stop_matcher.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

const tokenizer::Tokenizer& nano() {
  static const auto tokenizer =
      tokenizer::Tokenizer::from_file(std::string(BATHYS_TEST_DATA) + "/../inputs/models/nano/tokenizer.json");
  return tokenizer;
}

// How many tokens of the text it takes until a stop is complete; -1: never.
int tokens_until(const std::string& text, const std::vector<std::string>& stops) {
  engine::StopMatcher matcher(&nano(), stops);
  int n = 0;
  for (const std::int32_t id : nano().encode(text)) {
    ++n;
    if (matcher.push(id)) return n;
  }
  return -1;
}

TEST(StopMatcher, FindsAStopThatStraddlesTokens) {
  const int whole = static_cast<int>(nano().encode("And the LORD said unto Moses").size());
  EXPECT_EQ(tokens_until("And the LORD said unto Moses", {"unto Moses"}), whole);
  EXPECT_EQ(tokens_until("And the LORD said unto Moses", {"RD s", "zzz"}),
            tokens_until("And the LORD said unto Moses", {"RD s"}));
  EXPECT_GT(tokens_until("And the LORD said unto Moses", {"RD s"}), 0);
}

TEST(StopMatcher, FindsAStopOfManyBytesInByteTokens) {
  EXPECT_GT(tokens_until("x \xF0\x9F\x98\x80 y", {"\xF0\x9F\x98\x80"}), 0);
}

TEST(StopMatcher, NeverFindsWhatIsNotThere) {
  EXPECT_EQ(tokens_until("And the LORD said", {"lord"}), -1);
  EXPECT_EQ(tokens_until("And the LORD said", {}), -1);
  EXPECT_EQ(tokens_until("And the LORD said", {""}), -1);
}

}  // namespace
}  // namespace bathys::test
