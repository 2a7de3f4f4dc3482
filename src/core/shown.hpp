// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <cstddef>
#include <string>
#include <string_view>

namespace bathys {

// A value as a message quotes it: one line of JSON, of longer ones the first `limit` bytes and "...", always valid
// UTF-8.
std::string shown(const Json& value, std::size_t limit = 60);

// Text of others as a line or a table for people may hold it: what is no UTF-8 replaced by U+FFFD, control characters
// (a newline, an escape sequence of terminals) as \x0a, \x1b; of longer ones the first `limit` bytes and "...".
std::string printable(std::string_view text, std::size_t limit = std::string_view::npos);

}  // namespace bathys
