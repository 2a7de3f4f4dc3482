// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

// JSON as text: what must leave the program as it came in, or the same on every run, never goes through a parsed
// number.
namespace bathys::eval {

// The value of `key` in the outermost object of `object`, as it is written there; the first one when the key stands
// twice. Purely lexical: `object` need not be valid JSON, and only for valid JSON does the result mean anything.
[[nodiscard]] std::optional<std::string_view> raw_member(std::string_view object, std::string_view key);

// `text` with every number that JSON's grammar allows replaced by 0, all else untouched.  What a parser then says about
// the result it would say about `text`, but for numbers that no machine type can hold.
[[nodiscard]] std::string neutral_numbers(std::string_view text);

// A JSON string with its quotes; non-ASCII stays as it is.  `text` must be UTF-8 (invalid parts become U+FFFD).
[[nodiscard]] std::string json_string(std::string_view text);

// The shortest text that reads back as the same double; integral values keep a ".0", so that readers see a
// floating-point number.
//   throws Error(internal) for NaN and infinities, which JSON cannot say
[[nodiscard]] std::string json_number(double value);

// A JSON list of values that are JSON texts already; of integers.
[[nodiscard]] std::string json_list(const std::vector<std::string>& values);
template <class Integers>
[[nodiscard]] std::string json_integers(const Integers& values) {
  std::string text = "[";
  for (const auto value : values) {
    if (text.size() > 1) text += ',';
    text += std::to_string(value);
  }
  return text + "]";
}

}  // namespace bathys::eval
