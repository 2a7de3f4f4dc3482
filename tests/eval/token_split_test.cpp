// SPDX-License-Identifier: Apache-2.0
#include "eval/token_split.hpp"

#include "eval/support.hpp"

#include <numeric>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

using test::nano_tokenizer;

constexpr std::int32_t kPrefix = 0;

TokenPair split(std::string_view context, std::string_view continuation) {
  return split_pair(nano_tokenizer(), context, continuation, kPrefix);
}

TEST(SplitPair, MovesWhiteSpaceToTheContinuation) {
  const TokenPair expected = split("And God", " said");
  for (const std::string space : {" ", "\n", "\u00a0", "\u3000", "\u2028", "\x1c", "\u0085", "\t \u2009"}) {
    const TokenPair pair = split("And God" + space, "said");
    EXPECT_EQ(pair.context, expected.context);
    EXPECT_EQ(nano_tokenizer().decode(pair.continuation), space + "said");
  }
  EXPECT_EQ(nano_tokenizer().decode(split("And God\u200b", "said").continuation), "said");  // no white space
}

TEST(SplitPair, CountsTheContextsTokens) {
  const TokenPair pair = split("And Go", "d said");
  const TokenIds whole = nano_tokenizer().encode("And God said");
  const std::size_t n = nano_tokenizer().encode("And Go").size();
  EXPECT_EQ(pair.context, TokenIds(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(n)));
  EXPECT_EQ(pair.continuation, TokenIds(whole.begin() + static_cast<std::ptrdiff_t>(n), whole.end()));
}

TEST(SplitPair, PutsThePrefixTokenForAnEmptyContext) {
  EXPECT_EQ(split("", "And").context, TokenIds{kPrefix});
  EXPECT_EQ(split("", "And").continuation, nano_tokenizer().encode("And"));
  EXPECT_TRUE(split("", "And").prefixed);
  // A context of white space only is empty once that has moved.
  EXPECT_EQ(split(" \n", "And").continuation, nano_tokenizer().encode(" \nAnd"));
}

TEST(SplitPair, TakesTheContinuationsOwnPrefixToken) {
  const TokenPair pair = pair_of({}, {kPrefix, 7, 8}, kPrefix);
  EXPECT_EQ(pair.context, TokenIds{kPrefix});
  EXPECT_EQ(pair.continuation, (TokenIds{7, 8}));
  EXPECT_EQ(pair_of({5}, {kPrefix, 7}, kPrefix).continuation, (TokenIds{kPrefix, 7}));
}

TEST(TruncatePair, KeepsTheLastTokens) {
  const TokenPair pair{{1, 2, 3, 4}, {5, 6}, false};
  const Truncated whole = truncate_pair(pair, 5);
  EXPECT_EQ(whole.dropped, 0);
  EXPECT_EQ(whole.sequence.tokens, (std::vector<std::int32_t>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(whole.sequence.first_scored, 4);
  const Truncated cut = truncate_pair(pair, 2);
  EXPECT_EQ(cut.dropped, 3);
  EXPECT_EQ(cut.sequence.tokens, (std::vector<std::int32_t>{4, 5, 6}));
  EXPECT_EQ(cut.sequence.first_scored, 1);
}

// "P->0123, 0123->4": what each window reads, and what it predicts.
std::string windows_of(int n, std::int64_t length) {
  TokenIds ids(static_cast<std::size_t>(n));
  std::iota(ids.begin(), ids.end(), 0);
  constexpr std::int32_t kP = 99;
  std::string text;
  for (const auto& window : rolling_windows(ids, kP, length)) {
    if (!text.empty()) text += ", ";
    for (std::size_t i = 0; i < window.tokens.size(); ++i) {
      if (static_cast<std::int64_t>(i) == window.first_scored) text += "->";
      text += window.tokens[i] == kP ? "P" : fmt::format("{}.", window.tokens[i]);
    }
  }
  return text;
}

TEST(RollingWindows, PredictEveryTokenOnce) {
  EXPECT_EQ(windows_of(0, 4), "");
  EXPECT_EQ(windows_of(1, 4), "P->0.");
  EXPECT_EQ(windows_of(4, 4), "P->0.1.2.3.");
  EXPECT_EQ(windows_of(5, 4), "P->0.1.2.3., 0.1.2.3.->4.");
  EXPECT_EQ(windows_of(8, 4), "P->0.1.2.3., 3.->4.5.6.7.");
  EXPECT_EQ(windows_of(10, 4), "P->0.1.2.3., 3.->4.5.6.7., 5.6.7.->8.9.");
  EXPECT_EQ(windows_of(13, 4), "P->0.1.2.3., 3.->4.5.6.7., 7.->8.9.10.11., 8.9.10.11.->12.");
  EXPECT_EQ(windows_of(3, 1), "P->0., 0.->1., 1.->2.");
}

TEST(RollingWindows, ScoreAsManyTokensAsThereAreForAnyLength) {
  for (int n = 1; n < 40; ++n) {
    for (std::int64_t length = 1; length < 12; ++length) {
      TokenIds ids(static_cast<std::size_t>(n), 5);
      std::int64_t scored = 0;
      for (const auto& window : rolling_windows(ids, 0, length)) {
        EXPECT_GE(window.first_scored, 1);
        EXPECT_LE(std::ssize(window.tokens), length + 1);
        scored += std::ssize(window.tokens) - window.first_scored;
      }
      EXPECT_EQ(scored, n);
    }
  }
}

TEST(CountPieces, CountsEmptyEnds) {
  EXPECT_EQ(count_pieces(""), 1);
  EXPECT_EQ(count_pieces("a b\n c"), 3);
  EXPECT_EQ(count_pieces(" a "), 3);
  EXPECT_EQ(count_pieces("a\u2028b\u00a0c"), 3);
  EXPECT_EQ(count_pieces("   "), 2);
}

}  // namespace
}  // namespace bathys::eval
