// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.hpp"

namespace bathys::tokenizer {
namespace {

std::uint64_t edge(std::int32_t node, char byte) {
  return std::uint64_t{static_cast<std::uint32_t>(node)} << 8 | static_cast<std::uint8_t>(byte);
}

}  // namespace

void SpellingMatcher::add(std::string_view spelling, std::int32_t id) {
  begins_[static_cast<std::uint8_t>(spelling.front())] = true;
  std::int32_t node = 0;
  for (const char byte : spelling) {
    const auto [found, fresh] = children_.try_emplace(edge(node, byte), static_cast<std::int32_t>(id_at_.size()));
    if (fresh) id_at_.push_back(-1);
    node = found->second;
  }
  id_at_[static_cast<std::size_t>(node)] = id;
}

std::int32_t SpellingMatcher::child(std::int32_t node, char byte) const {
  const auto found = children_.find(edge(node, byte));
  return found == children_.end() ? -1 : found->second;
}

SpellingMatcher::Match SpellingMatcher::find(std::string_view text, std::size_t from, std::uint64_t& steps) const {
  steps += text.size() - from;
  for (std::size_t begin = from; begin < text.size(); ++begin) {
    if (!begins_[static_cast<std::uint8_t>(text[begin])]) continue;
    Match longest;
    std::int32_t node = 0;
    for (std::size_t at = begin; at < text.size(); ++at) {
      ++steps;
      node = child(node, text[at]);
      if (node < 0) break;
      const std::int32_t id = id_at_[static_cast<std::size_t>(node)];
      if (id >= 0) longest = {begin, at + 1 - begin, id};
    }
    if (longest.size > 0) {
      steps -= text.size() - begin;  // not looked at
      return longest;
    }
  }
  return {text.size(), 0, 0};
}

AddedTokens::AddedTokens(const std::vector<TokenizerFile::AddedToken>& added) {
  for (const TokenizerFile::AddedToken& token : added)
    (token.normalized ? normalized_ : raw_).add(token.content, token.id);
}

}  // namespace bathys::tokenizer
