// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What becomes of generated text once its last token is drawn.
namespace bathys::eval {

struct CutText {
  std::string text;
  std::optional<std::string> stop;  // the stop string that ended the text, if one did
};

// Cuts at the first occurrence of each stop, in list order, the stop excluded.  The order is the list's: a later stop
// is looked for in what the earlier ones left.
CutText cut_at_stops(std::string text, const std::vector<std::string>& stops);

struct Thought {
  std::string text;                      // the answer
  std::optional<std::string> reasoning;  // what stood before the marker; absent while still inside
  std::size_t reasoning_bytes = 0;       // of the whole text, the marker included; all of it while still inside
  bool in_thinking = false;              // no marker came: text is the raw reasoning
};

// The answer is what follows the LAST marker, without leading white space.
Thought split_thought(std::string_view text, std::string_view marker);

// Chat services' rule: the reasoning ends at the FIRST </think>, or where calls begin (with `with_calls`), whose tag is
// no part of it.  Only reasoning_bytes and in_thinking are set: tokenizer::parse_answer takes the text apart.
Thought split_first_thought(std::string_view text, bool with_calls);

}  // namespace bathys::eval
