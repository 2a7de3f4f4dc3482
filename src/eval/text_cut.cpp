// SPDX-License-Identifier: Apache-2.0
#include "eval/text_cut.hpp"

#include "tokenizer/unicode.hpp"

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

}  // namespace bathys::eval
