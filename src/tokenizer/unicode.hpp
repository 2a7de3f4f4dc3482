// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

// UTF-8 and the few properties of code points that tokenizing and scoring need.  Categories are those of Unicode 16.0,
// as the Hugging Face tokenizers library 0.23 has them (unicode_categories.inc); every assigned code point of that
// version is known.
namespace bathys::tokenizer {

// What one step over UTF-8 finds: a code point, or a maximal invalid part (the longest prefix of some valid sequence,
// else one byte), which stands for one U+FFFD as in Rust's String::from_utf8_lossy and the WHATWG decoder.
struct Utf8Step {
  char32_t code_point;  // kReplacement when invalid
  std::uint8_t size;    // bytes, 1..4
  bool valid;
  bool truncated;  // invalid, but more bytes could have made it valid: the text ends inside a sequence
};
inline constexpr char32_t kReplacement = 0xFFFD;

// The step at text[at], at < text.size().
[[nodiscard]] Utf8Step utf8_step(std::string_view text, std::size_t at);
[[nodiscard]] bool is_valid_utf8(std::string_view text);
// Copies `text`, each maximal invalid part replaced by U+FFFD.
[[nodiscard]] std::string to_valid_utf8(std::string_view text);
void append_utf8(std::string& out, char32_t code_point);

// Classes of code points; one bit each, so that a set of classes is a mask.  None: unassigned, private
// use, format characters, and controls that are no white space.
enum CodeClass : std::uint8_t {
  kNone = 0,
  kLetter = 1,       // L
  kMark = 2,         // M
  kPunctuation = 4,  // P
  kSymbol = 8,       // S
  kNumber = 16,      // N
  kSpace = 32,       // \s of the library's regular expressions: 25 code points, not U+180E, not U+200B
};
[[nodiscard]] CodeClass code_class(char32_t code_point);

// White space as Python's str has it (strip, split, re's \s): the 25 of kSpace and U+001C..001F.
[[nodiscard]] bool is_python_space(char32_t code_point);
// text.lstrip() and text.rstrip() of Python.  Invalid bytes are no white space.
[[nodiscard]] std::string_view strip_left(std::string_view text);
[[nodiscard]] std::string_view strip_right(std::string_view text);
// len(text.split()) of Python.
[[nodiscard]] std::int64_t count_words(std::string_view text);
// Code points, an invalid part counting one: len(text) of Python.
[[nodiscard]] std::int64_t count_code_points(std::string_view text);

}  // namespace bathys::tokenizer
