// SPDX-License-Identifier: Apache-2.0
#include "eval/text_cut.hpp"

#include "tokenizer/prompt_part.hpp"
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <utility>

namespace bathys::eval {

CutText cut_at_stops(std::string text, const std::vector<std::string>& stops) {
  CutText out{std::move(text), std::nullopt};
  for (const std::string& stop : stops) {
    const std::size_t at = out.text.find(stop);
    if (stop.empty() || at == std::string::npos) continue;
    out.text.resize(at);
    out.stop = stop;
  }
  return out;
}

Thought split_thought(std::string_view text, std::string_view marker) {
  Thought out;
  const std::size_t at = text.rfind(marker);
  if (at == std::string_view::npos) {
    out.text = text;
    out.reasoning_bytes = text.size();
    out.in_thinking = true;
    return out;
  }
  out.reasoning_bytes = at + marker.size();
  out.reasoning = std::string(text.substr(0, at));
  out.text = tokenizer::strip_left(text.substr(out.reasoning_bytes));
  return out;
}

Thought split_first_thought(std::string_view text, bool with_calls) {
  Thought out;
  const std::size_t end = text.find(tokenizer::kThinkEnd);
  const std::size_t calls = with_calls ? text.find(std::string("<").append(tokenizer::kDsml)) : std::string_view::npos;
  out.in_thinking = std::min(end, calls) == std::string_view::npos;
  out.reasoning_bytes = out.in_thinking ? text.size() : end < calls ? end + tokenizer::kThinkEnd.size() : calls;
  return out;
}

}  // namespace bathys::eval
