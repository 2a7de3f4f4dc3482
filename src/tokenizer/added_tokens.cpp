// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/added_tokens.hpp"

#include <algorithm>
#include <numeric>

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
    const auto [found, fresh] = children_.try_emplace(edge(node, byte), static_cast<std::int32_t>(nodes_.size()));
    if (fresh) {
      Node added;
      added.parent = node;
      added.depth = at(node).depth + 1;
      added.byte = byte;
      nodes_.push_back(added);
    }
    node = found->second;
  }
  nodes_[static_cast<std::size_t>(node)].id = id;
}

void SpellingMatcher::link() {
  std::vector<std::int32_t> by_depth(nodes_.size());
  std::iota(by_depth.begin(), by_depth.end(), 0);
  std::stable_sort(by_depth.begin(), by_depth.end(),
                   [this](std::int32_t a, std::int32_t b) { return at(a).depth < at(b).depth; });
  std::uint64_t steps = 0;
  for (const std::int32_t number : by_depth) {
    if (number == 0) continue;
    Node& node = nodes_[static_cast<std::size_t>(number)];
    node.suffix = node.parent == 0 ? 0 : next(at(node.parent).suffix, node.byte, steps);
    node.longest = node.id >= 0 ? number : at(node.suffix).longest;
  }
}

std::int32_t SpellingMatcher::child(std::int32_t node, char byte) const {
  if (node == 0 && !begins_[static_cast<std::uint8_t>(byte)]) return -1;
  const auto found = children_.find(edge(node, byte));
  return found == children_.end() ? -1 : found->second;
}

std::int32_t SpellingMatcher::next(std::int32_t node, char byte, std::uint64_t& steps) const {
  std::int32_t to = child(node, byte);
  while (to < 0 && node != 0) {
    ++steps;
    node = at(node).suffix;
    to = child(node, byte);
  }
  return std::max(to, 0);
}

SpellingMatcher::Match SpellingMatcher::find(std::string_view text, std::size_t from, std::uint64_t& steps) const {
  Match match;
  std::int32_t node = 0;
  for (std::size_t i = from; i < text.size(); ++i) {
    ++steps;
    node = next(node, text[i], steps);
    const std::size_t end = i + 1;
    // All that may still become a spelling begins where the node's bytes do, or later.
    if (match.size > 0 && end - at(node).depth > match.begin) return match;
    const std::int32_t spelling = at(node).longest;
    if (spelling == 0) continue;
    const std::size_t size = at(spelling).depth;
    if (match.size == 0 || end - size <= match.begin) match = {end - size, size, at(spelling).id};
  }
  return match.size > 0 ? match : Match{text.size(), 0, 0};
}

AddedTokens::AddedTokens(const std::vector<TokenizerFile::AddedToken>& added) {
  for (const TokenizerFile::AddedToken& token : added)
    (token.normalized ? normalized_ : raw_).add(token.content, token.id);
  raw_.link();
  normalized_.link();
}

}  // namespace bathys::tokenizer
