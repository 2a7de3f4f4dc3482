// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/byte_alphabet.hpp"

#include "tokenizer/unicode.hpp"

#include <array>

namespace bathys::tokenizer {
namespace {

constexpr char32_t kAlphabetEnd = 0x144;

constexpr bool stands_for_itself(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte <= 0xAC) || byte >= 0xAE;
}

struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<std::int16_t, kAlphabetEnd> byte{};  // -1: not of the alphabet

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t moved = 0x100;
    for (unsigned b = 0; b < 256; ++b) {
      character[b] = stands_for_itself(b) ? b : moved++;
      byte[character[b]] = static_cast<std::int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

}  // namespace

char32_t alphabet_character(std::uint8_t byte) { return kAlphabet.character[byte]; }

std::string alphabet_spelling(std::uint8_t byte) {
  std::string spelling;
  append_utf8(spelling, alphabet_character(byte));
  return spelling;
}

std::optional<std::string> alphabet_bytes(std::string_view spelling) {
  std::string bytes;
  bytes.reserve(spelling.size());
  for (std::size_t at = 0; at < spelling.size();) {
    const Utf8Step step = utf8_step(spelling, at);
    if (step.code_point >= kAlphabetEnd || kAlphabet.byte[step.code_point] < 0) return std::nullopt;
    bytes.push_back(static_cast<char>(kAlphabet.byte[step.code_point]));
    at += step.size;
  }
  return bytes;
}

}  // namespace bathys::tokenizer
