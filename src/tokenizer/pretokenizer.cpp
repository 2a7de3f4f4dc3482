// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/pretokenizer.hpp"

#include "tokenizer/unicode.hpp"

#include <cstdint>

namespace bathys::tokenizer {
namespace {

// Traits beyond the CodeClass bits.  A number and a character of the second pattern have their one trait only, so that
// no rule of the third pattern can run over them: for it they are the end of the piece.
constexpr unsigned kNewline = 64;     // CR or LF; these have kSpace as well
constexpr unsigned kHan = 128;        // in the second pattern's set
constexpr unsigned kAsciiWord = 256;  // A-Z a-z
constexpr unsigned kAsciiSign = 512;  // the 32 ASCII signs
constexpr unsigned kOther = 1024;     // none of L M P S N \s: unassigned, private, format, other controls
constexpr unsigned kBlank = 2048;     // U+0020
constexpr unsigned kWord = kLetter | kMark;
constexpr unsigned kSign = kPunctuation | kSymbol;
constexpr unsigned kBorder = kNumber | kHan;

constexpr bool is_han(char32_t c) { return (c >= 0x4E00 && c <= 0x9FA5) || (c >= 0x3040 && c <= 0x30FF); }

unsigned traits_of(char32_t c) {
  if (is_han(c)) return kHan;
  unsigned traits = code_class(c);
  if (traits == kNone) return kOther;
  if (c == '\r' || c == '\n') traits |= kNewline;
  if (c == ' ') traits |= kBlank;
  if (c < 0x80 && (traits & kLetter) != 0) traits |= kAsciiWord;
  if (c < 0x80 && (traits & kSign) != 0) traits |= kAsciiSign;
  return traits;
}

struct AsciiTraits {
  std::array<std::uint16_t, 128> of{};
  AsciiTraits() {
    for (char32_t c = 0; c < 128; ++c) of[c] = static_cast<std::uint16_t>(traits_of(c));
  }
};
const AsciiTraits kAscii;

}  // namespace

PieceScanner::Char PieceScanner::peek(std::size_t at) {
  ++steps_;
  if (at == text_.size()) return {at, 0};
  const auto byte = static_cast<std::uint8_t>(text_[at]);
  if (byte < 0x80) return {at + 1, kAscii.of[byte]};
  const Utf8Step step = utf8_step(text_, at);
  return {at + step.size, traits_of(step.code_point)};
}

std::size_t PieceScanner::skip(std::size_t at, unsigned traits) {
  for (Char c = peek(at); (c.traits & traits) != 0; c = peek(at)) at = c.end;
  return at;
}

std::string_view PieceScanner::next() {
  const std::size_t begin = at_;
  Char c = peek(begin);
  at_ = c.end;
  if ((c.traits & kNumber) != 0) {
    for (int n = 1; n < 3 && ((c = peek(at_)).traits & kNumber) != 0; ++n) at_ = c.end;
  } else if ((c.traits & kHan) != 0) {
    at_ = skip(at_, kHan);
  } else if ((c.traits & kOther) != 0 && (peek(at_).traits & kWord) == 0) {
    // No rule matches here: what lies between two matches is one piece, up to a character that leads a word.
    while (((c = peek(at_)).traits & kOther) != 0 && (peek(c.end).traits & kWord) == 0) at_ = c.end;
  } else {
    at_ = match(begin);
  }
  return text_.substr(begin, at_ - begin);
}

// The third pattern's alternatives, first one that fits, at a character that some alternative matches.
std::size_t PieceScanner::match(std::size_t at) {
  const Char first = peek(at);
  if ((first.traits & kWord) != 0) return skip(first.end, kWord);
  const Char second = peek(first.end);
  if ((first.traits & kAsciiSign) != 0 && (second.traits & kAsciiWord) != 0) return skip(second.end, kAsciiWord);
  if ((first.traits & (kSign | kNewline)) == 0 && (second.traits & kWord) != 0) return skip(second.end, kWord);
  if ((first.traits & kSign) != 0) return skip(skip(first.end, kSign), kNewline);
  if ((first.traits & kBlank) != 0 && (second.traits & kSign) != 0) return skip(skip(second.end, kSign), kNewline);
  return match_space(at);
}

std::size_t PieceScanner::match_space(std::size_t at) {
  std::size_t end = at;
  std::size_t last = at;
  std::size_t newline_end = 0;
  Char c = peek(at);
  for (; (c.traits & kSpace) != 0; c = peek(end)) {
    last = end;
    end = c.end;
    if ((c.traits & kNewline) != 0) newline_end = end;
  }
  if (newline_end != 0) return newline_end;  // \s*[\r\n]+ gives back what follows the last line end
  const bool at_piece_end = c.traits == 0 || (c.traits & kBorder) != 0;
  // \s+(?!\S) leaves the last space to the word behind; a single one is taken by \s+.
  return at_piece_end || last == at ? end : last;
}

}  // namespace bathys::tokenizer
