// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <optional>
#include <string>
#include <string_view>

namespace bathys::tokenizer {

// JSON as Python's json.dumps(value, ensure_ascii=False) writes it, for the model was trained on such text: ", " and
// ": " between, members in the order they have, everything beyond ASCII raw, floats by their shortest digits with
// Python's choice of form (1e-07, 1e+16, 100000.0), integers beyond 64 bits as floats, -0 as -0.0.
//   value   as a parser made it (an integer zero of signed type was written -0)
std::string python_json(const Json& value);

// `text` inside the quotes of a JSON string, appended to `out`; escapes only ", \ and control characters below U+0020.
// May be given a string in pieces.
void append_json_escaped(std::string& out, std::string_view text);

// The object that `text` is, or nothing where it is no JSON object: looser than parse_json, as the arguments of a
// call come from a model (of a key that stands twice the last value counts, at the first place), but at most 127 deep.
std::optional<Json> parse_call_arguments(std::string_view text);

}  // namespace bathys::tokenizer
