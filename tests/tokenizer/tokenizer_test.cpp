// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/tokenizer.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "tokenizer/fixtures.hpp"
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <climits>
#include <cmath>
#include <cstdlib>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using test::large_tokenizer;
using test::nano_tokenizer;
using ::testing::ElementsAre;
using Ids = std::vector<TokenId>;

const std::string kNullByte(1, '\0');

TEST(Tokenizer, AgreesWithTheLibraryOnEveryVector) {
  std::size_t n = 0;
  for (const Json& line : test::read_json_lines(BATHYS_TEST_DATA "/tokenizer/data/vectors.jsonl")) {
    const auto text = line.at("text").get<std::string>();
    const auto ids = line.at("ids").get<Ids>();
    ASSERT_EQ(large_tokenizer().encode(text), ids) << text;
    ASSERT_EQ(large_tokenizer().decode(ids), text);
    ++n;
  }
  EXPECT_EQ(n, 1346U);
}

TEST(Tokenizer, AgreesWithTheGoldenVectorsOfTheSmallModels) {
  for (const std::string model : {"base", "vision", "plain"}) {
    const std::string folder = BATHYS_TEST_DATA "/golden/" + model;
    const Tokenizer tokenizer = Tokenizer::from_file(folder + "/model/tokenizer.json");
    for (const Json& line : test::read_json_lines(folder + "/tokenizer_vectors.jsonl")) {
      const auto ids = line.at("ids").get<Ids>();
      EXPECT_EQ(tokenizer.encode(line.at("text").get<std::string>()), ids) << model;
      EXPECT_EQ(tokenizer.decode(ids), line.at("decoded").get<std::string>()) << model;
    }
  }
}

TEST(Tokenizer, TakesAddedTokensOrTheirLettersAsAsked) {
  EXPECT_THAT(large_tokenizer().encode("x<｜User｜>y"), ElementsAre(90, 128803, 91));
  EXPECT_THAT(large_tokenizer().encode("x<｜User｜>y", false), ElementsAre(90, 30, 28217, 6756, 28217, 32, 91));
  EXPECT_THAT(large_tokenizer().encode("<｜begin▁of▁sentence｜><｜User｜>hello<｜Assistant｜></think>"),
              ElementsAre(0, 128803, 33310, 128804, 128822));
}

TEST(Tokenizer, NeedsNoTextForNoToken) {
  EXPECT_TRUE(large_tokenizer().encode("").empty());
  EXPECT_EQ(large_tokenizer().decode({}), "");
}

TEST(Tokenizer, TakesInvalidUtf8AsReplacementCharacters) {
  EXPECT_EQ(large_tokenizer().encode("a\xFF\xE6\xB7z"), large_tokenizer().encode("a\uFFFD\uFFFDz"));
}

TEST(Tokenizer, SkipsOnlySpecialTokensWhenAsked) {
  const Ids ids = large_tokenizer().encode("<｜begin▁of▁sentence｜><｜User｜>hi</think><｜end▁of▁sentence｜>");
  EXPECT_EQ(large_tokenizer().decode(ids, true), "<｜User｜>hi</think>");
  EXPECT_EQ(large_tokenizer().decode(ids), "<｜begin▁of▁sentence｜><｜User｜>hi</think><｜end▁of▁sentence｜>");
}

TEST(Tokenizer, DecodesHalfCharactersAsTheLossyDecoderDoes) {
  const Ids ids =
      large_tokenizer().encode("😀");  // 57664 holds " 😀"'s first bytes elsewhere; here several byte-level tokens
  ASSERT_GT(ids.size(), 1U);
  EXPECT_EQ(large_tokenizer().decode({ids.data(), 1}), "\uFFFD");
}

TEST(Tokenizer, RefusesIdsThatDoNotExist) {
  for (const TokenId id : {-1, 1024, INT32_MAX, INT32_MIN}) {
    const Ids ids{5, id};
    EXPECT_THROW((void)nano_tokenizer().decode(ids), Error);
    EXPECT_THROW((void)nano_tokenizer().token_text(id), Error);
    EXPECT_THROW((void)nano_tokenizer().is_special(id), Error);
  }
}

TEST(Tokenizer, KnowsItsTokens) {
  EXPECT_EQ(large_tokenizer().vocab_size(), 129280);
  EXPECT_EQ(large_tokenizer().token_id("Ġthe"), 270);
  EXPECT_EQ(large_tokenizer().token_text(270), "Ġthe");
  EXPECT_EQ(large_tokenizer().token_bytes(270), " the");
  EXPECT_EQ(large_tokenizer().token_id("<｜deepseek_image｜>"), 129264);
  EXPECT_EQ(large_tokenizer().token_id(" the"), std::nullopt);
  EXPECT_TRUE(large_tokenizer().is_special(0));
  EXPECT_FALSE(large_tokenizer().is_special(128803));
}

// A random text of all kinds of code points, some of it words and added tokens.
std::string random_text(std::mt19937& random, std::size_t n) {
  static const std::vector<std::string> kParts = {
      "the",   " of",        "HTTP/2",          "don't",    "\r\n",   "\n\n",   "   ",
      "\t",    "<｜User｜>", "</think>",        "｜DSML｜", "１２３", "東京",   "カタカナ",
      "naïve", "e\u0301",    "👨\u200D👩\u200D👧", "\u3000",   "\u00A0", "\u180E", "…",
      "--",    "x_y",        "12345678901",     "½",        "٣",      "ไทย",    "हिन्दी",
      "\u2028"};
  std::string text;
  for (std::size_t i = 0; i < n; ++i) {
    switch (random() % 4) {
      case 0:
        text += kParts[random() % kParts.size()];
        break;
      case 1:
        text.push_back(static_cast<char>(random() % 128));
        break;
      case 2:
        append_utf8(text, static_cast<char32_t>(random() % 0xD800));
        break;
      default:
        append_utf8(text, static_cast<char32_t>(0xE000 + random() % (0x110000 - 0xE000)));
        break;
    }
  }
  return text;
}

TEST(Tokenizer, GivesEveryValidTextBack) {
  std::mt19937 random(1);
  for (int i = 0; i < 2000; ++i) {
    const std::string text = random_text(random, random() % 60);
    for (const bool match_added : {true, false}) {
      const Ids ids = large_tokenizer().encode(text, match_added);
      ASSERT_EQ(large_tokenizer().decode(ids), text);
    }
  }
}

TEST(Tokenizer, StreamsWhatItDecodesWithoutHalfCharacters) {
  std::mt19937 random(2);
  for (int i = 0; i < 2000; ++i) {
    Ids ids(random() % 20);
    for (TokenId& id : ids) id = static_cast<TokenId>(random() % (i % 2 == 0 ? 259 : 129280));
    const bool skip_special = i % 3 == 0;
    ASSERT_NO_FATAL_FAILURE(test::expect_streams_as_it_decodes(large_tokenizer(), ids, skip_special));
  }
}

TEST(Tokenizer, EmitsACharacterWithItsLastByte) {
  StreamDecoder stream(large_tokenizer());
  std::vector<std::string> parts;
  for (const std::string spelling : {"ð", "Ł", "ĺ", "Ģ", "!"})
    parts.push_back(stream.push(*large_tokenizer().token_id(spelling)));
  EXPECT_THAT(parts, ElementsAre("", "", "", "😀", "!"));
  EXPECT_EQ(stream.finish(), "");
}

TEST(Tokenizer, EncodesAlikeInManyThreads) {
  std::mt19937 random(3);
  std::vector<std::string> texts;
  for (int i = 0; i < 300; ++i) texts.push_back(random_text(random, random() % 200));
  const Tokenizer fresh = Tokenizer::from_file(BATHYS_LARGE_TOKENIZER);  // nothing remembered yet
  const std::vector<Ids> got = fresh.encode_batch(texts, 8);
  ASSERT_EQ(got.size(), texts.size());
  for (std::size_t i = 0; i < texts.size(); ++i) ASSERT_EQ(got[i], large_tokenizer().encode(texts[i]));
  EXPECT_TRUE(fresh.encode_batch({}, 8).empty());
}

std::string repeated(std::string_view unit, std::size_t n) {
  std::string text;
  while (text.size() < n) text += unit;
  return text;
}

// Sixteen times the text takes sixteen times the steps and what a sort adds, for texts without a break to cut them at:
// letters, spaces, signs, characters of one to four bytes, bytes that are no UTF-8, beginnings of added tokens.
TEST(Tokenizer, TakesStepsInProportionToNLogN) {
  const auto steps = [](std::string_view unit, std::size_t n) {
    Ids ids;
    return static_cast<double>(large_tokenizer().encode_to(repeated(unit, n), true, ids));
  };
  for (const std::string_view unit : {"a",
                                      " ",
                                      "😀",
                                      "\n",
                                      "abcdefghijklmnopqrstuvwxyz",
                                      "ก",
                                      "-",
                                      "1",
                                      "東",
                                      "\u0001",
                                      "<",
                                      "<｜place▁holder▁no▁79",
                                      "<｜User｜>",
                                      "\r",
                                      " \n",
                                      "\n ",
                                      "a\u0301",
                                      "\xFF",
                                      "\xF0\x9F",
                                      "ab ",
                                      " a",
                                      "\u3000"}) {
    constexpr double kSmall = 50'000;
    constexpr double kLarge = 16 * kSmall;
    const double small = steps(unit, static_cast<std::size_t>(kSmall));
    const double large = steps(unit, static_cast<std::size_t>(kLarge));
    EXPECT_LT(large / (kLarge * std::log2(kLarge)), 1.05 * small / (kSmall * std::log2(kSmall))) << unit;
    EXPECT_LT(large, 16 * kLarge * std::log2(kLarge)) << unit;
  }
}

// 100 MB without a break: the whole product's tests only, as it takes 3 GB and a minute.
TEST(Tokenizer, TakesAHundredMegabytesOfOneCharacter) {
  if (std::getenv("BATHYS_FULL") == nullptr) GTEST_SKIP() << "in tests/run.sh --full";
#if defined(__SANITIZE_ADDRESS__)
  GTEST_SKIP() << "an optimized build does it; the sanitizers see the same code at smaller sizes";
#endif
  constexpr std::size_t kBytes = 100'000'000;
  for (const std::string_view unit : {"a", " ", "😀"}) {
    const std::string text = repeated(unit, kBytes);
    Ids ids;
    const auto steps = static_cast<double>(large_tokenizer().encode_to(text, true, ids));
    EXPECT_LT(steps, 16 * kBytes * std::log2(kBytes)) << unit;
    EXPECT_TRUE(large_tokenizer().decode(ids) == text) << unit;
  }
}

// The plain rule of byte pair encoding: of all neighbours the pair of lowest rank, leftmost first, until none merges.
std::vector<std::string> merge_plainly(std::vector<std::string> parts,
                                       const std::map<std::pair<std::string, std::string>, int>& ranks) {
  for (;;) {
    std::size_t best = 0;
    int lowest = INT_MAX;
    for (std::size_t i = 0; i + 1 < parts.size(); ++i) {
      const auto found = ranks.find({parts[i], parts[i + 1]});
      if (found == ranks.end() || found->second >= lowest) continue;
      lowest = found->second;
      best = i;
    }
    if (lowest == INT_MAX) return parts;
    parts[best] += parts[best + 1];
    parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(best) + 1);
  }
}

// Short words are merged by scanning, long ones by a queue; ranks in another order than the training's take the queue's
// side ways.
TEST(Tokenizer, MergesByThePlainRuleInAnyOrderOfRanks) {
  std::mt19937 random(4);
  Json file = parse_json(test::read_text(BATHYS_NANO_TOKENIZER), "nano", ExitCode::bad_input);
  Json& merges = file["model"]["merges"];
  for (int order = 0; order < 4; ++order) {
    if (order == 1) std::reverse(merges.begin(), merges.end());
    if (order > 1) std::shuffle(merges.begin(), merges.end(), random);
    std::map<std::pair<std::string, std::string>, int> ranks;
    for (std::size_t rank = 0; rank < merges.size(); ++rank) {
      ranks[{merges[rank][0].get<std::string>(), merges[rank][1].get<std::string>()}] = static_cast<int>(rank);
    }
    const Tokenizer tokenizer = Tokenizer::from_json(file.dump(), "shuffled");
    for (const std::size_t size : {2, 3, 10, 100, 255, 256, 257, 258, 600}) {
      for (const std::string letters : {"ab", "heatn", "etaoinshrdlu"}) {
        std::string word;
        while (word.size() < size) word += letters[random() % letters.size()];
        std::vector<std::string> bytes;
        for (const char c : word) bytes.emplace_back(1, c);
        Ids want;
        for (const std::string& part : merge_plainly(bytes, ranks)) want.push_back(tokenizer.token_id(part).value());
        ASSERT_EQ(tokenizer.encode(word), want) << "order " << order << ": " << word;
        ASSERT_EQ(tokenizer.encode(word), want) << "again";
      }
    }
  }
}

}  // namespace
}  // namespace bathys::tokenizer
