// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace bathys::tokenizer {

// The three regular expressions of the family's pre-tokenizer, as tokenizer.json spells them; each is a Split
// (Isolated) inside the pieces of the one before.  A file with others is refused: PieceScanner knows these only.
inline constexpr std::array<std::string_view, 3> kSplitPatterns = {
    R"(\p{N}{1,3})",
    "[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
    "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| "
    "?[\\p{P}\\p{S}]+[\r\n]*|"
    "\\s*[\r\n]+|\\s+(?!\\S)|\\s+",
};

// Cuts valid UTF-8 into the pieces that BPE merges within: the result of the three splits in one pass, linear in the
// text.
class PieceScanner {
 public:
  explicit PieceScanner(std::string_view text) : text_(text) {}
  [[nodiscard]] bool done() const { return at_ == text_.size(); }
  // The next piece, never empty; only while !done().
  std::string_view next();
  // Code points looked at so far, those looked at twice counted twice.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  // One code point with what the patterns ask about it.
  struct Char {
    std::size_t end;  // index behind it
    unsigned traits;  // CodeClass bits and the ones of pretokenizer.cpp; 0 at the text's end
  };
  [[nodiscard]] Char peek(std::size_t at);
  [[nodiscard]] std::size_t skip(std::size_t at, unsigned traits);
  [[nodiscard]] std::size_t match(std::size_t at);
  [[nodiscard]] std::size_t match_space(std::size_t at);

  std::string_view text_;
  std::size_t at_ = 0;
  std::uint64_t steps_ = 0;
};

}  // namespace bathys::tokenizer
