// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bathys::tokenizer {

// The byte-level alphabet of GPT-2: every byte has one printable character, by which vocabularies spell it.  "!".."~",
// U+00A1..AC and U+00AE..FF stand for themselves, the other 68 bytes, ascending, are U+0100..U+0143.
[[nodiscard]] char32_t alphabet_character(std::uint8_t byte);
// The same in UTF-8.
[[nodiscard]] std::string alphabet_spelling(std::uint8_t byte);

// The bytes that `spelling` (UTF-8) stands for, or nothing when a character of it is not of the alphabet.
[[nodiscard]] std::optional<std::string> alphabet_bytes(std::string_view spelling);

}  // namespace bathys::tokenizer
