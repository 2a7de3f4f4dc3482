// SPDX-License-Identifier: Apache-2.0
// Random and damaged input to all that reads bytes from outside: the JSON reader, tokenizer.json, texts, token ids,
// chats, answers. What is wrong is refused by an Error, what is taken keeps its promises, and under the sanitizers no
// byte outside is touched.
//   BATHYS_FUZZ_SEED     begin with this seed: one that a failure printed
//   BATHYS_FUZZ_SECONDS  of each target (default: 1; under AddressSanitizer 5; with BATHYS_FULL 60)
#include "core/error.hpp"
#include "core/json.hpp"
#include "tokenizer/answer_parser.hpp"
#include "tokenizer/fixtures.hpp"
#include "tokenizer/prompt.hpp"
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#if defined(__SANITIZE_ADDRESS__)
extern "C" void __sanitizer_set_death_callback(void (*callback)());  // NOLINT(readability-identifier-naming): not ours
#endif

namespace bathys::tokenizer {
namespace {

using Random = std::mt19937_64;
using Ids = std::vector<TokenId>;

std::uint64_t current_seed = 0;

double number_from(const char* name, double fallback) {
  const char* const text = std::getenv(name);
  return text == nullptr ? fallback : std::strtod(text, nullptr);
}

// Runs body(random) with one seed after another until the time is over or a check fails.
void fuzz(const std::function<void(Random&)>& body) {
  double seconds = std::getenv("BATHYS_FULL") == nullptr ? 1 : 60;
#if defined(__SANITIZE_ADDRESS__)
  seconds = std::max(seconds, 5.0);
  __sanitizer_set_death_callback(
      [] { std::fprintf(stderr, "BATHYS_FUZZ_SEED=%llu\n", static_cast<unsigned long long>(current_seed)); });
#endif
  seconds = number_from("BATHYS_FUZZ_SECONDS", seconds);
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed = [&] { return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count(); };
  current_seed = static_cast<std::uint64_t>(number_from("BATHYS_FUZZ_SEED", 1));
  std::uint64_t n = 0;
  do {
    Random random(current_seed);
    body(random);
    if (testing::Test::HasFailure()) {
      FAIL() << "again with BATHYS_FUZZ_SEED=" << current_seed;
    }
    ++current_seed;
    ++n;
  } while (elapsed() < seconds);
  std::printf("inputs=%llu seconds=%.1f\n", static_cast<unsigned long long>(n), elapsed());
}

std::size_t below(Random& random, std::size_t n) { return random() % n; }
template <class List>
const auto& one_of(Random& random, const List& list) {
  return list[below(random, std::size(list))];
}

// What the formats are made of, their traps among it.
const std::vector<std::string> kPieces = {"\"",
                                          "{",
                                          "}",
                                          "[",
                                          "]",
                                          ":",
                                          ",",
                                          "\\",
                                          "\\u0000",
                                          "\\ud800",
                                          "\\udc00",
                                          "\\u",
                                          "null",
                                          "true",
                                          "-0",
                                          "1e999",
                                          "0.5",
                                          "18446744073709551616",
                                          "-1",
                                          "\n",
                                          " ",
                                          "\"\":",
                                          "\"a\":1",
                                          "[[[[",
                                          "}}}}",
                                          "\xFF",
                                          "\xC0\x80",
                                          "\xED\xA0\x80",
                                          "\xF0\x9F",
                                          "é",
                                          "\uFEFF",
                                          "😀",
                                          "<think>",
                                          "</think>",
                                          "<｜User｜>",
                                          "｜DSML｜",
                                          "<｜DSML｜ calls>",
                                          "</｜DSML｜",
                                          "\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"",
                                          "\">\n",
                                          "<｜DSML｜ parameter name=\"x\" string=\"true\">",
                                          "vocab",
                                          "merges",
                                          "added_tokens",
                                          "a b",
                                          "#version",
                                          "Ġ"};

std::string random_bytes(Random& random, std::size_t n) {
  std::string text;
  while (text.size() < n) {
    switch (below(random, 5)) {
      case 0:
        text += one_of(random, kPieces);
        break;
      case 1:
        text.push_back(static_cast<char>(random()));
        break;
      case 2:
        text.append(1 + below(random, 300), static_cast<char>(random() % 128));
        break;
      default: {
        const auto c = static_cast<char32_t>(below(random, below(random, 2) == 0 ? 0x800 : 0x110000));
        append_utf8(text, c >= 0xD800 && c < 0xE000 ? U'-' : c);
        break;
      }
    }
  }
  return text;
}

// Some bytes changed, taken out, put in, doubled, moved or cut off.
std::string damaged(Random& random, std::string text) {
  for (std::size_t changes = 1 + below(random, 4); changes > 0 && !text.empty(); --changes) {
    const std::size_t at = below(random, text.size());
    const std::size_t size = std::min(text.size() - at, 1 + below(random, below(random, 2) == 0 ? 4 : 400));
    switch (below(random, 6)) {
      case 0:
        text[at] = static_cast<char>(random());
        break;
      case 1:
        text.erase(at, size);
        break;
      case 2:
        text.insert(at, one_of(random, kPieces));
        break;
      case 3:
        text.insert(below(random, text.size()), text.substr(at, size));
        break;
      case 4:
        text.replace(at, size, random_bytes(random, size));
        break;
      default:
        if (below(random, 8) == 0) text.resize(at);
        break;
    }
  }
  return text;
}

// One value of the document replaced, doubled or taken out: still JSON, which plain damage seldom is.
void damage_value(Random& random, Json& value) {
  static const std::vector<Json> values = {nullptr,
                                           true,
                                           0,
                                           -1,
                                           3,
                                           67.0,
                                           2147483647,
                                           "",
                                           "a",
                                           "a b",
                                           "😀",
                                           Json::array(),
                                           Json::object(),
                                           Json::array({"a", "b"}),
                                           9.9e99,
                                           std::string(5000, 'x'),
                                           18446744073709551615U};
  if (value.is_structured() && !value.empty() && below(random, 8) != 0) {
    auto child = value.begin();
    std::advance(child, static_cast<std::ptrdiff_t>(below(random, value.size())));
    if (below(random, 12) == 0) {
      value.erase(child);
      return;
    }
    if (value.is_array() && below(random, 12) == 0) {
      value.push_back(*child);
      return;
    }
    damage_value(random, *child);
    return;
  }
  if (value.is_object() && below(random, 2) == 0) {
    value[random_bytes(random, 3).substr(0, 1 + below(random, 3))] = one_of(random, values);
    return;
  }
  value = one_of(random, values);
}

// Text that is not UTF-8 cannot be dumped: it was put in by a key.
std::string dumped(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

void expect_round_trip(const Tokenizer& tokenizer, const std::string& text) {
  const std::string valid = to_valid_utf8(text);
  for (const bool match_added : {true, false}) {
    const Ids ids = tokenizer.encode(text, match_added);
    ASSERT_TRUE(tokenizer.decode(ids) == valid);
    ASSERT_EQ(tokenizer.encode(valid, match_added), ids);
  }
}

// A cause is a short text, whatever it quotes.
void expect_readable(std::string_view cause) {
  EXPECT_FALSE(cause.empty());
  EXPECT_LT(cause.size(), 3000U) << cause;
  EXPECT_TRUE(is_valid_utf8(cause)) << cause;
}

TEST(Fuzz, JsonIsReadOrRefused) {
  const std::vector<Json> chats = test::read_json_lines(BATHYS_TEST_DATA "/cases/files/chat_cases.jsonl");
  fuzz([&](Random& random) {
    Json source = one_of(random, chats);
    damage_value(random, source);
    const std::string text = damaged(random, dumped(source));
    Json value;
    const auto cause = try_parse_json(text, value);
    if (cause) {
      expect_readable(*cause);
      return;
    }
    Json again;
    EXPECT_FALSE(try_parse_json(value.dump(), again).has_value());  // dump() throws on what is no UTF-8
    EXPECT_EQ(value, again);
  });
}

TEST(Fuzz, TokenizerFilesAreReadOrRefused) {
  // The nano model's file with few merges, so that its features are met as often as its tables.
  Json small = parse_json(test::read_text(BATHYS_NANO_TOKENIZER), "nano", ExitCode::bad_input);
  Json vocab = Json::object();
  Json merges = Json::array();
  for (const auto& [spelling, id] : small["model"]["vocab"].items()) {
    if (id.get<int>() < 279) vocab[spelling] = id;
  }
  for (std::size_t i = 0; i < 20; ++i) merges.push_back(small["model"]["merges"][i]);
  Json added = Json::array();
  int next = 279;
  for (const Json& token : small["added_tokens"]) {
    added.push_back(token);
    if (token["id"].get<int>() >= 3) added.back()["id"] = next++;
  }
  while (next % 8 != 0) {
    added.push_back(added.back());
    added.back()["id"] = next;
    added.back()["content"] = "<more" + std::to_string(next++) + ">";
  }
  small["model"]["vocab"] = vocab;
  small["model"]["merges"] = merges;
  small["added_tokens"] = added;
  ASSERT_EQ(Tokenizer::from_json(small.dump(), "small").vocab_size(), next);
  int taken = 0;
  fuzz([&](Random& random) {
    Json source = small;
    const std::size_t kind = below(random, 3);
    if (kind != 0) damage_value(random, source);
    const std::string text = kind == 1 ? dumped(source) : damaged(random, dumped(source));
    try {
      const Tokenizer tokenizer = Tokenizer::from_json(text, "t.json");
      expect_round_trip(tokenizer, random_bytes(random, 300));
      ++taken;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ExitCode::bad_input);
      EXPECT_EQ(std::string(error.what()).rfind("t.json", 0), 0U) << error.what();
      expect_readable(error.what());
    }
  });
  EXPECT_GT(taken, 0);
}

TEST(Fuzz, TextsComeBackFromTheirIds) {
  fuzz([&](Random& random) {
    const std::string text = random_bytes(random, below(random, 2000));
    expect_round_trip(test::nano_tokenizer(), text);
    expect_round_trip(test::large_tokenizer(), text);
    const Tokenizer& tokenizer = below(random, 2) == 0 ? test::nano_tokenizer() : test::large_tokenizer();
    Ids ids(below(random, 50));
    for (TokenId& id : ids) {
      id = static_cast<TokenId>(
          below(random, below(random, 2) == 0 ? 259 : static_cast<std::size_t>(tokenizer.vocab_size())));
    }
    const bool skip_special = below(random, 2) == 0;
    ASSERT_NO_FATAL_FAILURE(test::expect_streams_as_it_decodes(tokenizer, ids, skip_special));
  });
}

TEST(Fuzz, ChatsAreEncodedOrRefusedAndAnswersTakenApart) {
  const std::vector<Json> chats = test::read_json_lines(BATHYS_TEST_DATA "/cases/files/chat_cases.jsonl");
  const std::vector<Json> answers = test::read_json_lines(BATHYS_TEST_DATA "/cases/files/chat_parse.jsonl");
  int encoded = 0;
  fuzz([&](Random& random) {
    Json body = one_of(random, chats).at("body");
    for (std::size_t n = below(random, 3); n > 0; --n) damage_value(random, body);
    Json read;
    if (!try_parse_json(dumped(body), read)) {
      try {
        const Ids ids = encode_prompt(test::nano_tokenizer(), read_conversation(read));
        EXPECT_FALSE(ids.empty());
        ++encoded;
      } catch (const PromptError& error) {
        EXPECT_FALSE(error.code().empty());
        expect_readable(error.what());
      }
    }
    const std::string output = damaged(random, one_of(random, answers).at("output").get<std::string>());
    const auto start = static_cast<AnswerStart>(below(random, 5));
    const Answer whole = parse_answer(output, start);
    AnswerParser parser(start);
    for (std::size_t at = 0; at < output.size();) {
      const std::size_t size = 1 + below(random, 5);
      parser.feed(std::string_view(output).substr(at, size));
      at += size;
    }
    const Answer parts = parser.finish();
    EXPECT_EQ(parts.reasoning, whole.reasoning);
    EXPECT_EQ(parts.content, whole.content);
    ASSERT_EQ(parts.calls.size(), whole.calls.size());
    for (std::size_t i = 0; i < whole.calls.size(); ++i) {
      EXPECT_EQ(parts.calls[i].name, whole.calls[i].name);
      EXPECT_EQ(parts.calls[i].arguments, whole.calls[i].arguments);
    }
  });
  EXPECT_GT(encoded, 0);
}

}  // namespace
}  // namespace bathys::tokenizer
