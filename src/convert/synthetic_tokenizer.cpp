// SPDX-License-Identifier: Apache-2.0
#include "convert/synthetic_tokenizer.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/pretokenizer.hpp"
#include "tokenizer/token_map.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/unicode.hpp"

#include <array>
#include <cctype>
#include <cstdint>
#include <string_view>

namespace bathys::convert {
namespace {

constexpr const char* kName = "synthetic tokenizer.json";
constexpr std::array<const char*, 3> kSpecials = {"<｜begin▁of▁sentence｜>", "<｜end▁of▁sentence｜>", "<｜▁pad▁｜>"};
constexpr std::int64_t kBytes = 256;
constexpr std::int64_t kPlain = static_cast<std::int64_t>(kSpecials.size()) + kBytes + 1;  // and the one merge
constexpr std::string_view kWord = "synthetic";
constexpr std::int64_t kMostCopies = std::int64_t{1} << kWord.size();  // of one class: capitals anywhere in the word

Json added_token(std::int64_t id, const std::string& content, bool special) {
  return {{"id", id},        {"content", content},  {"single_word", false}, {"lstrip", false},
          {"rstrip", false}, {"normalized", false}, {"special", special}};
}

// Spelling of a class: the bits of `copy` choose capitals, which the classes of tokens ignore.
std::string spelling(std::int64_t number, std::int64_t copy) {
  std::string word(kWord);
  for (std::size_t i = 0; i < word.size(); ++i) {
    if ((copy >> i & 1) != 0) word[i] = static_cast<char>(std::toupper(word[i]));
  }
  return fmt::format("<|{}_{}|>", word, number);
}

Json byte_level(bool add_prefix_space) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", add_prefix_space}, {"trim_offsets", true}, {"use_regex", false}};
}

// Special tokens, bytes and one merge alone.
Json plain_tokenizer() {
  Json stages = Json::array();
  for (const std::string_view pattern : tokenizer::kSplitPatterns) {
    stages.push_back(
        {{"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}});
  }
  stages.push_back(byte_level(false));
  Json vocab = Json::object();
  Json added = Json::array();
  for (const char* const special : kSpecials) {
    const auto id = static_cast<std::int64_t>(added.size());
    vocab[special] = id;
    added.push_back(added_token(id, special, true));
  }
  for (int byte = 0; byte < kBytes; ++byte) {
    std::string character;
    tokenizer::append_utf8(character, tokenizer::alphabet_character(static_cast<std::uint8_t>(byte)));
    vocab[character] = vocab.size();
  }
  vocab["th"] = vocab.size();
  Json root;
  root["version"] = "1.0";
  root["truncation"] = nullptr;
  root["padding"] = nullptr;
  root["added_tokens"] = std::move(added);
  root["normalizer"] = nullptr;
  root["pre_tokenizer"] = {{"type", "Sequence"}, {"pretokenizers", std::move(stages)}};
  root["post_processor"] = nullptr;
  root["decoder"] = byte_level(true);
  root["model"] = {{"type", "BPE"}, {"vocab", std::move(vocab)}, {"merges", Json::array({"t h"})}};
  return root;
}

}  // namespace

std::string synthetic_tokenizer_json(const config::ModelConfig& config) {
  require(config.vocab_size >= kPlain, ExitCode::usage,
          "vocab_size is {}: a synthetic tokenizer has at least {} ids; give a tokenizer", config.vocab_size, kPlain);
  Json root = plain_tokenizer();
  const std::int64_t n_added = config.vocab_size - kPlain;
  std::int64_t n_classes = n_added;
  if (config.engram_enabled()) {
    const auto plain = tokenizer::Tokenizer::from_json(root.dump(), kName, kPlain);
    const std::int64_t n_plain = tokenizer::compressed_token_map(plain).n_classes;
    n_classes = config.engram_compressed_vocab_size - n_plain;
    const std::int64_t least = (n_added + kMostCopies - 1) / kMostCopies;
    require(n_classes >= least && n_classes <= n_added, ExitCode::usage,
            "engram_compressed_vocab_size is {}: the {} tokens of a synthetic tokenizer fall into {} to {} classes; "
            "give a tokenizer that belongs to the config",
            config.engram_compressed_vocab_size, config.vocab_size, n_plain + least, n_plain + n_added);
  }
  Json& added = root["added_tokens"];
  for (std::int64_t i = 0; i < n_added; ++i)
    added.push_back(added_token(kPlain + i, spelling(i % n_classes, i / n_classes), false));
  return root.dump() + "\n";
}

}  // namespace bathys::convert
