// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <cstddef>
#include <string>

namespace bathys {

// A value as a message quotes it: one line of JSON, of longer ones the first `limit` bytes and "...", always valid
// UTF-8.
std::string shown(const Json& value, std::size_t limit = 60);

}  // namespace bathys
