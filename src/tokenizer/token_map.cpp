// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_map.hpp"

#include "core/error.hpp"
#include "tokenizer/sha256.hpp"
#include "tokenizer/unicode.hpp"

#include <bit>
#include <memory>
#include <span>
#include <string_view>
#include <unordered_map>

#include <utf8proc.h>

namespace bathys::tokenizer {
namespace {

static_assert(std::endian::native == std::endian::little, "class_of is hashed as little-endian int32");

// NFKD of valid UTF-8.  (The recipe says NFKC and then NFD, which is the same.)
std::string compatibility_decomposed(std::string_view text) {
  utf8proc_uint8_t* raw = nullptr;
  const auto options = static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE | UTF8PROC_COMPAT);
  const utf8proc_ssize_t size = utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                                             static_cast<utf8proc_ssize_t>(text.size()), &raw, options);
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(raw, &std::free);
  require(size >= 0, ExitCode::internal, "utf8proc cannot normalize a token: {}", utf8proc_errmsg(size));
  return {reinterpret_cast<const char*>(raw), static_cast<std::size_t>(size)};
}

// Unicode's White_Space, which strip() takes; the same 25 code points as the regular expressions' \s.
bool is_white_space(char32_t c) { return code_class(c) == kSpace; }

// Without marks, lowercased one code point at a time (no final-sigma rule), runs of space, tab, CR and LF as one space.
std::u32string folded(std::string_view text) {
  std::u32string out;
  for (std::size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    at += step.size;
    char32_t c = step.code_point;
    if (code_class(c) == kMark) continue;
    if (c == ' ' || c == '\t' || c == '\r' || c == '\n') {
      if (!out.empty() && out.back() == ' ') continue;
      c = ' ';
    }
    out.push_back(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c))));
  }
  return out;
}

std::string stripped(const std::u32string& text) {
  std::size_t begin = 0;
  std::size_t end = text.size();
  if (text != U" ") {  // the recipe parks a lone space, so that it is not lost
    while (begin < end && is_white_space(text[begin])) ++begin;
    while (end > begin && is_white_space(text[end - 1])) --end;
  }
  std::string out;
  for (std::size_t i = begin; i < end; ++i) append_utf8(out, text[i]);
  return out;
}

std::string key_of(const Tokenizer& tokenizer, TokenId id) {
  const std::string text = to_valid_utf8(tokenizer.token_bytes(id));
  if (text.find("\xEF\xBF\xBD") != std::string::npos) return std::string(tokenizer.token_text(id));
  const std::string key = stripped(folded(compatibility_decomposed(text)));
  return key.empty() ? text : key;
}

}  // namespace

CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer) {
  CompressedTokenMap map;
  const auto size = static_cast<TokenId>(tokenizer.vocab_size());
  map.class_of.reserve(static_cast<std::size_t>(size));
  std::unordered_map<std::string, std::int32_t> classes;
  for (TokenId id = 0; id < size; ++id) {
    const auto next = static_cast<std::int32_t>(classes.size());
    map.class_of.push_back(classes.try_emplace(key_of(tokenizer, id), next).first->second);
  }
  map.n_classes = static_cast<std::int64_t>(classes.size());
  map.sha256 = sha256_hex(std::as_bytes(std::span(map.class_of)));
  return map;
}

}  // namespace bathys::tokenizer
