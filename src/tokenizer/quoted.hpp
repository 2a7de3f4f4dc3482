// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/shown.hpp"

#include <string_view>

#include <fmt/format.h>

namespace bathys::tokenizer {

// A text as a message quotes it, spelled only when the message is: checks of every token of a file pass it for nothing.
struct Quoted {
  std::string_view text;
};

}  // namespace bathys::tokenizer

template <>
struct fmt::formatter<bathys::tokenizer::Quoted> {
  constexpr auto parse(format_parse_context& context) { return context.begin(); }
  auto format(bathys::tokenizer::Quoted quoted, format_context& context) const {
    return format_to(context.out(), "{}", bathys::shown(quoted.text));
  }
};
