// SPDX-License-Identifier: Apache-2.0
// Tables and matchers with contents that were chosen to make them slow: the work is counted, not timed.
#include "tokenizer/added_tokens.hpp"
#include "tokenizer/bpe.hpp"
#include "tokenizer/string_pool.hpp"

#include <algorithm>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using Match = SpellingMatcher::Match;

// 2^14 strings of two words a bit: either two words of zeros, or the top bit of the first and bit 28 of the second.  A
// hash that rotates an odd multiple of (hash ^ word) by 29 gives all of them one value, whatever it begins with.
std::vector<std::string> colliding_strings() {
  constexpr unsigned kBits = 14;
  std::vector<std::string> out;
  for (unsigned number = 0; number < 1U << kBits; ++number) {
    std::string text(std::size_t{16} * kBits, '\0');
    for (unsigned bit = 0; bit < kBits; ++bit) {
      if ((number >> bit & 1U) == 0) continue;
      text[16 * bit + 7] = static_cast<char>(0x80);
      text[16 * bit + 11] = 0x10;
    }
    out.push_back(text);
  }
  return out;
}

TEST(HostileTables, StringsChosenToCollideDoNot) {
  const std::vector<std::string> texts = colliding_strings();
  StringIndex index(texts.size());
  const auto text_of = [&](std::int32_t number) { return std::string_view(texts[static_cast<std::size_t>(number)]); };
  for (std::size_t i = 0; i < texts.size(); ++i) {
    ASSERT_EQ(index.find(texts[i], text_of), StringIndex::kAbsent);
    index.insert(texts[i], static_cast<std::int32_t>(i));
  }
  for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(index.find(texts[i], text_of), static_cast<std::int32_t>(i));
  EXPECT_LT(index.longest_run(), 500U);  // a random table of this size and load: about 50
}

TEST(HostileTables, PairsChosenToCollideDoNot) {
  // x times the inverse of the golden ratio's multiplier: a table of fixed multiplier has them all at its beginning.
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  std::uint64_t inverse = kOdd;
  for (int i = 0; i < 6; ++i) inverse *= 2 - kOdd * inverse;
  ASSERT_EQ(kOdd * inverse, 1U);
  std::vector<std::pair<std::int32_t, std::int32_t>> pairs;
  for (std::uint64_t x = 1; pairs.size() < 10'000; ++x) {
    const std::uint64_t key = x * inverse;
    const auto first = static_cast<std::int32_t>(key >> 32);
    const auto second = static_cast<std::int32_t>(key & 0xFFFFFFFFU);
    if (first >= 0 && second >= 0) pairs.emplace_back(first, second);
  }
  MergeTable table(pairs.size());
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    ASSERT_TRUE(table.insert(pairs[i].first, pairs[i].second, {static_cast<std::int32_t>(i), 0}));
  }
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    ASSERT_EQ(table.find(pairs[i].first, pairs[i].second).rank, static_cast<std::int32_t>(i));
  }
  EXPECT_LT(table.longest_run(), 500U);
}

TEST(HostileTables, ALongSpellingCostsNoLookUpsAByte) {
  SpellingMatcher matcher;
  matcher.add(std::string(1023, 'a') + "b", 7);
  matcher.link();
  constexpr std::size_t kBytes = 100'000;
  std::string text(kBytes, 'a');
  std::uint64_t steps = 0;
  EXPECT_EQ(matcher.find(text, 0, steps).size, 0U);
  EXPECT_LE(steps, 2 * kBytes);
  text.back() = 'b';
  steps = 0;
  const Match match = matcher.find(text, 0, steps);
  EXPECT_EQ(match.begin, kBytes - 1024);
  EXPECT_EQ(match.id, 7);
  EXPECT_LE(steps, 2 * kBytes);
}

// The rule itself: at the first place where any spelling stands, the longest.
Match plainly(const std::vector<std::string>& spellings, std::string_view text, std::size_t from) {
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    Match best;
    for (std::size_t i = 0; i < spellings.size(); ++i) {
      if (spellings[i].size() > best.size && text.substr(begin).starts_with(spellings[i])) {
        best = {begin, spellings[i].size(), static_cast<std::int32_t>(i)};
      }
    }
    if (best.size > 0) return best;
  }
  return {text.size(), 0, 0};
}

TEST(HostileTables, TheFirstPlaceAndThereTheLongestSpellingIsFound) {
  std::mt19937 random(3);
  const auto letters = [&](std::size_t most) {
    std::string text(1 + random() % most, 'a');
    for (char& c : text) c = static_cast<char>('a' + random() % 2);
    return text;
  };
  std::uint64_t steps = 0;
  for (int round = 0; round < 3000; ++round) {
    std::vector<std::string> spellings(1 + random() % 6);
    for (std::string& spelling : spellings) spelling = letters(7);
    std::sort(spellings.begin(), spellings.end());
    spellings.erase(std::unique(spellings.begin(), spellings.end()), spellings.end());
    SpellingMatcher matcher;
    for (std::size_t i = 0; i < spellings.size(); ++i) matcher.add(spellings[i], static_cast<std::int32_t>(i));
    matcher.link();
    const std::string text = letters(40);
    for (std::size_t from = 0; from <= text.size(); ++from) {
      const Match want = plainly(spellings, text, from);
      const Match found = matcher.find(text, from, steps);
      ASSERT_EQ(found.begin, want.begin) << text << " from " << from;
      ASSERT_EQ(found.size, want.size) << text << " from " << from;
      ASSERT_EQ(found.id, want.id) << text << " from " << from;
    }
  }
}

}  // namespace
}  // namespace bathys::tokenizer
