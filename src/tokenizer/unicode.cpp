// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <vector>

namespace bathys::tokenizer {
namespace {

constexpr std::uint64_t kHighBits = 0x8080808080808080U;

struct ClassRange {
  std::uint32_t first;
  std::uint32_t last;
  CodeClass code_class;
};
constexpr ClassRange kClassRanges[] = {
#include "tokenizer/unicode_categories.inc"
};
constexpr ClassRange kSpaceRanges[] = {
    {0x9, 0xD, kSpace},       {0x20, 0x20, kSpace},     {0x85, 0x85, kSpace},     {0xA0, 0xA0, kSpace},
    {0x1680, 0x1680, kSpace}, {0x2000, 0x200A, kSpace}, {0x2028, 0x2029, kSpace}, {0x202F, 0x202F, kSpace},
    {0x205F, 0x205F, kSpace}, {0x3000, 0x3000, kSpace},
};

// Two-stage table: 4,352 blocks of 256 code points, equal blocks kept once (about 60 kB instead of 1.1 MB).
class ClassTable {
 public:
  ClassTable() {
    std::vector<CodeClass> flat(kBlocks * kBlockSize, kNone);
    for (const ClassRange& range : kClassRanges) fill(flat, range);
    for (const ClassRange& range : kSpaceRanges) fill(flat, range);
    for (std::size_t block = 0; block < kBlocks; ++block) {
      const CodeClass* begin = &flat[block * kBlockSize];
      std::size_t known = 0;
      while (known < classes_.size() && !std::equal(begin, begin + kBlockSize, &classes_[known])) known += kBlockSize;
      if (known == classes_.size()) classes_.insert(classes_.end(), begin, begin + kBlockSize);
      block_begin_[block] = static_cast<std::uint16_t>(known / kBlockSize);
    }
  }
  [[nodiscard]] CodeClass at(char32_t c) const {
    return c < kBlocks * kBlockSize ? classes_[block_begin_[c / kBlockSize] * kBlockSize + c % kBlockSize] : kNone;
  }

 private:
  static constexpr std::size_t kBlocks = 0x1100;
  static constexpr std::size_t kBlockSize = 256;

  static void fill(std::vector<CodeClass>& flat, const ClassRange& range) {
    std::fill(flat.begin() + range.first, flat.begin() + range.last + 1, range.code_class);
  }

  std::array<std::uint16_t, kBlocks> block_begin_{};
  std::vector<CodeClass> classes_;
};

// What may follow a lead byte: how many bytes in all, and the range of the second one (Unicode, table 3-7).
struct Lead {
  std::uint8_t size;  // 0: never leads
  std::uint8_t second_min;
  std::uint8_t second_max;
};
constexpr Lead lead_of(std::uint8_t byte) {
  if (byte >= 0xC2 && byte <= 0xDF) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};  // no surrogates
  if (byte >= 0xE1 && byte <= 0xEF) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte >= 0xF1 && byte <= 0xF3) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

std::size_t ascii_prefix(std::string_view text, std::size_t at) {
  while (at + 8 <= text.size()) {
    std::uint64_t word = 0;
    std::memcpy(&word, text.data() + at, 8);
    if ((word & kHighBits) != 0) break;
    at += 8;
  }
  while (at < text.size() && static_cast<std::uint8_t>(text[at]) < 0x80) ++at;
  return at;
}

// First byte at or after `at` that begins an invalid part, or the text's size.
std::size_t find_invalid(std::string_view text, std::size_t at) {
  while ((at = ascii_prefix(text, at)) < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!step.valid) return at;
    at += step.size;
  }
  return at;
}

}  // namespace

Utf8Step utf8_step(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t first = byte(at);
  if (first < 0x80) return {first, 1, true, false};
  const Lead lead = lead_of(first);
  if (lead.size == 0) return {kReplacement, 1, false, false};
  char32_t code_point = first & (0xFFU >> (lead.size + 1));
  for (std::uint8_t i = 1; i < lead.size; ++i) {
    if (at + i == text.size()) return {kReplacement, i, false, true};
    const std::uint8_t next = byte(at + i);
    const bool fits = i == 1 ? next >= lead.second_min && next <= lead.second_max : (next & 0xC0) == 0x80;
    if (!fits) return {kReplacement, i, false, false};
    code_point = code_point << 6 | (next & 0x3FU);
  }
  return {code_point, lead.size, true, false};
}

bool is_valid_utf8(std::string_view text) { return find_invalid(text, 0) == text.size(); }

std::string to_valid_utf8(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t bad = find_invalid(text, at);
    out.append(text, at, bad - at);
    if (bad == text.size()) break;
    append_utf8(out, kReplacement);
    at = bad + utf8_step(text, bad).size;
  }
  return out;
}

void append_utf8(std::string& out, char32_t code_point) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(static_cast<std::uint8_t>(byte))); };
  const auto tail = [&](int shift) { put(0x80 | (code_point >> shift & 0x3F)); };
  if (code_point < 0x80) {
    put(code_point);
  } else if (code_point < 0x800) {
    put(0xC0 | code_point >> 6);
    tail(0);
  } else if (code_point < 0x10000) {
    put(0xE0 | code_point >> 12);
    tail(6);
    tail(0);
  } else {
    put(0xF0 | code_point >> 18);
    tail(12);
    tail(6);
    tail(0);
  }
}

CodeClass code_class(char32_t code_point) {
  static const ClassTable table;
  return table.at(code_point);
}

bool is_python_space(char32_t code_point) {
  return code_class(code_point) == kSpace || (code_point >= 0x1C && code_point <= 0x1F);
}

std::string_view strip_left(std::string_view text) {
  std::size_t at = 0;
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text, at);
    if (!is_python_space(step.code_point)) break;
    at += step.size;
  }
  return text.substr(at);
}

std::string_view strip_right(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    // White space takes at most 3 bytes; step back over continuation bytes to where the last code point may begin.
    std::size_t at = end - 1;
    while (at > 0 && end - at < 3 && (static_cast<std::uint8_t>(text[at]) & 0xC0) == 0x80) --at;
    const Utf8Step step = utf8_step(text.substr(0, end), at);
    if (at + step.size != end || !is_python_space(step.code_point)) break;
    end = at;
  }
  return text.substr(0, end);
}

std::int64_t count_words(std::string_view text) {
  std::int64_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    const bool space = is_python_space(step.code_point);
    if (!space && !inside) ++words;
    inside = !space;
    at += step.size;
  }
  return words;
}

std::int64_t count_code_points(std::string_view text) {
  std::int64_t n = 0;
  for (std::size_t at = 0; at < text.size(); at += utf8_step(text, at).size) ++n;
  return n;
}

}  // namespace bathys::tokenizer
