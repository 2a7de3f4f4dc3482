// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/string_pool.hpp"
#include "tokenizer/tokenizer_file.hpp"

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// Every token by id: its spelling in tokenizer.json, the bytes it decodes to, whether it is special.  Ids are 0 ..
// size()-1 without a hole, each with one spelling, each spelling with one id.
class Vocabulary {
 public:
  //   throws Error(bad_input) naming the id or spelling that breaks that, or the number of ids (see
  //   Tokenizer::from_json)
  Vocabulary(const TokenizerFile& file, std::string_view name, std::optional<std::int64_t> vocab_size);

  [[nodiscard]] std::int32_t size() const { return static_cast<std::int32_t>(tokens_.size()); }
  [[nodiscard]] bool contains(std::int32_t id) const { return id >= 0 && id < size(); }
  [[nodiscard]] std::string_view text(std::int32_t id) const { return pool_.at(token(id).text); }
  [[nodiscard]] std::string_view bytes(std::int32_t id) const { return pool_.at(token(id).bytes); }
  [[nodiscard]] bool is_special(std::int32_t id) const { return token(id).special; }
  // The token stands in model.vocab: it can be a part or the result of a merge.
  [[nodiscard]] bool in_model(std::int32_t id) const { return token(id).in_model; }
  // The token stands in model.vocab and is spelled in the byte alphabet: a piece of its bytes can become it.
  [[nodiscard]] bool is_byte_level(std::int32_t id) const { return token(id).in_model && token(id).byte_level; }
  // StringIndex::kAbsent when no token is spelled so.
  [[nodiscard]] std::int32_t find(std::string_view text) const;

 private:
  struct Token {
    StringPool::Slice text;
    StringPool::Slice bytes;
    bool present = false;
    bool byte_level = false;  // spelled in the byte alphabet
    bool in_model = false;
    bool special = false;
  };
  [[nodiscard]] const Token& token(std::int32_t id) const { return tokens_[static_cast<std::size_t>(id)]; }
  void add_model_token(const TokenizerFile& file, const TokenizerFile::VocabEntry& entry, std::string_view name);
  void add_added_token(const TokenizerFile::AddedToken& added, std::string_view name);
  void check_complete(std::string_view name, std::optional<std::int64_t> vocab_size) const;
  Token& slot(std::int32_t id);
  void set_text(Token& token, std::string_view text);

  StringPool pool_;
  std::vector<Token> tokens_;
  StringIndex by_text_;
};

}  // namespace bathys::tokenizer
