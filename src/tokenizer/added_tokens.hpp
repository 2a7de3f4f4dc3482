// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer_file.hpp"

#include <array>
#include <cstdint>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace bathys::tokenizer {

// Finds given spellings in a text: leftmost first, of those the longest, without overlap.
class SpellingMatcher {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t size = 0;  // 0: no match
    std::int32_t id = 0;
  };
  void add(std::string_view spelling, std::int32_t id);
  // Once all spellings are added, before the first find().
  void link();
  // The first match at or after `from`.  A search looks at each byte once, however long the spellings; it can end a
  // spelling's length behind its match, which the next one looks at again.
  // `steps` grows by the bytes looked at and the links followed.
  [[nodiscard]] Match find(std::string_view text, std::size_t from, std::uint64_t& steps) const;

 private:
  // Aho and Corasick's automaton: a trie whose nodes know where to go on when the text leaves it.
  struct Node {
    std::int32_t id = -1;  // of the spelling that ends here
    std::int32_t parent = 0;
    std::int32_t suffix = 0;   // the longest proper suffix of this node's bytes that is a node
    std::int32_t longest = 0;  // the longest suffix, this node among them, that is a spelling; 0: none
    std::uint32_t depth = 0;   // its bytes
    char byte = 0;             // the last one
  };
  [[nodiscard]] std::int32_t child(std::int32_t node, char byte) const;
  // Where the byte leads from the node, over as many suffixes as it takes.
  [[nodiscard]] std::int32_t next(std::int32_t node, char byte, std::uint64_t& steps) const;
  [[nodiscard]] const Node& at(std::int32_t node) const { return nodes_[static_cast<std::size_t>(node)]; }

  std::vector<Node> nodes_{1};                                // the root first
  std::unordered_map<std::uint64_t, std::int32_t> children_;  // node << 8 | byte
  std::array<bool, 256> begins_{};
};

// The added tokens of a tokenizer.json in two passes, as the library has them: those not `normalized` first, in what
// they leave the normalized ones (there is no normalizer, so the order is all that the flag means).
class AddedTokens {
 public:
  explicit AddedTokens(const std::vector<TokenizerFile::AddedToken>& added);

  // Calls on_text(part) and on_token(id) in the order of `text`; parts are not empty.  `steps` grows as in find().
  template <class OnText, class OnToken>
  void split(std::string_view text, std::uint64_t& steps, const OnText& on_text, const OnToken& on_token) const {
    const auto again = [&](std::string_view part) { cut(normalized_, part, steps, on_text, on_token); };
    cut(raw_, text, steps, again, on_token);
  }

 private:
  template <class OnText, class OnToken>
  static void cut(const SpellingMatcher& matcher, std::string_view text, std::uint64_t& steps, const OnText& on_text,
                  const OnToken& on_token) {
    for (std::size_t at = 0; at < text.size();) {
      const SpellingMatcher::Match match = matcher.find(text, at, steps);
      if (match.begin > at) on_text(text.substr(at, match.begin - at));
      if (match.size == 0) return;
      on_token(match.id);
      at = match.begin + match.size;
    }
  }
  SpellingMatcher raw_;
  SpellingMatcher normalized_;
};

}  // namespace bathys::tokenizer
