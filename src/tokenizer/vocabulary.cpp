// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/vocabulary.hpp"

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/quoted.hpp"

#include <string>

namespace bathys::tokenizer {
namespace {

constexpr auto kCode = ExitCode::bad_input;
constexpr std::int64_t kSizeUnit = 8;

}  // namespace

Vocabulary::Vocabulary(const TokenizerFile& file, std::string_view name, std::optional<std::int64_t> vocab_size)
    : by_text_(file.vocab.size() + file.added.size()) {
  tokens_.resize(file.vocab.size());
  for (const TokenizerFile::VocabEntry& entry : file.vocab) add_model_token(file, entry, name);
  // Ids of the file are at most as many as its entries; anything beyond leaves a hole.
  const std::size_t most = file.vocab.size() + file.added.size();
  std::vector<std::int32_t> entry_of(most, StringIndex::kAbsent);
  for (std::size_t i = 0; i < file.added.size(); ++i) {
    const TokenizerFile::AddedToken& added = file.added[i];
    require(static_cast<std::size_t>(added.id) < most, kCode,
            "{}: the added token {} has id {}, but the file has only {} tokens; ids must leave no hole", name,
            Quoted{added.content}, added.id, most);
    add_added_token(added, name);
    // Its flags could differ from those of the first.
    std::int32_t& entry = entry_of[static_cast<std::size_t>(added.id)];
    require(entry == StringIndex::kAbsent, kCode, "{}: added_tokens[{}] repeats added_tokens[{}] ({}); list it once",
            name, i, entry, Quoted{added.content});
    entry = static_cast<std::int32_t>(i);
  }
  check_complete(name, vocab_size);
}

std::int32_t Vocabulary::find(std::string_view text) const {
  return by_text_.find(text, [this](std::int32_t id) { return this->text(id); });
}

void Vocabulary::add_model_token(const TokenizerFile& file, const TokenizerFile::VocabEntry& entry,
                                 std::string_view name) {
  const std::string_view text = file.pool.at(entry.text);
  // A model token beyond the model's own count can still be right: added tokens may stand between model tokens.
  require(static_cast<std::size_t>(entry.id) < file.vocab.size() + file.added.size(), kCode,
          "{}: model.vocab gives {} the id {}, but the file has only {} tokens; ids must leave no hole", name,
          Quoted{text}, entry.id, file.vocab.size() + file.added.size());
  const std::int32_t other = find(text);
  require(other == StringIndex::kAbsent, kCode, "{}: model.vocab has {} twice, with ids {} and {}", name, Quoted{text},
          other, entry.id);
  Token& token = slot(entry.id);
  require(!token.present, kCode, "{}: model.vocab gives the id {} to {} and to {}", name, entry.id,
          Quoted{pool_.at(token.text)}, Quoted{text});
  token.in_model = true;
  set_text(token, text);
  by_text_.insert(text, entry.id);
}

void Vocabulary::add_added_token(const TokenizerFile::AddedToken& added, std::string_view name) {
  const std::int32_t known = find(added.content);
  require(known == StringIndex::kAbsent || known == added.id, kCode,
          "{}: the added token {} has id {}, but that spelling has id {} already", name, Quoted{added.content},
          added.id, known);
  Token& token = slot(added.id);
  require(!token.present || known == added.id, kCode, "{}: the added token {} has the id {} of {}", name,
          Quoted{added.content}, added.id, Quoted{token.present ? pool_.at(token.text) : std::string_view()});
  token.special = added.special;
  if (known == added.id) return;
  set_text(token, added.content);
  by_text_.insert(added.content, added.id);
}

Vocabulary::Token& Vocabulary::slot(std::int32_t id) {
  const auto index = static_cast<std::size_t>(id);
  if (index >= tokens_.size()) tokens_.resize(index + 1);
  return tokens_[index];
}

void Vocabulary::set_text(Token& token, std::string_view text) {
  token.present = true;
  token.text = pool_.add(text);
  const std::optional<std::string> bytes = alphabet_bytes(text);
  token.byte_level = bytes.has_value();
  token.bytes = !bytes || *bytes == text ? token.text : pool_.add(*bytes);
}

void Vocabulary::check_complete(std::string_view name, std::optional<std::int64_t> vocab_size) const {
  require(!tokens_.empty(), kCode, "{}: model.vocab is empty", name);
  for (std::int32_t id = 0; id < size(); ++id) {
    require(token(id).present, kCode, "{}: no token has the id {}, though ids run to {}", name, id, size() - 1);
  }
  for (int byte = 0; byte < 256; ++byte) {
    const std::string spelling = alphabet_spelling(static_cast<std::uint8_t>(byte));
    const std::int32_t id = find(spelling);
    require(id != StringIndex::kAbsent && token(id).in_model, kCode,
            "{}: model.vocab lacks the byte {:#04x}, spelled {}", name, byte, Quoted{spelling});
  }
  if (vocab_size) {
    require(size() == *vocab_size, kCode, "{}: has {} ids, the model's config has vocab_size {}", name, size(),
            *vocab_size);
  } else {
    require(size() % kSizeUnit == 0, kCode,
            "{}: has {} ids, expected a multiple of {} as every vocabulary of this family has (a token was added or is "
            "missing)",
            name, size(), kSizeUnit);
  }
}

}  // namespace bathys::tokenizer
