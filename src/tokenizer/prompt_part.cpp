// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt_part.hpp"

namespace bathys::tokenizer {

void PromptWriter::text(std::string_view text) {
  if (text.empty()) return;
  if (parts_.empty() || parts_.back().marker) parts_.push_back({{}, false});
  parts_.back().text += text;
}

void PromptWriter::parts(const std::vector<PromptPart>& parts) {
  for (const PromptPart& part : parts) {
    if (part.marker) {
      marker(part.text);
    } else {
      text(part.text);
    }
  }
}

void PromptWriter::words(std::string_view words) {
  while (!words.empty()) {
    std::size_t first = std::string_view::npos;
    std::string_view spelling;
    for (const std::string_view candidate : {kThink, kThinkEnd, kDsml}) {
      const std::size_t at = words.find(candidate);
      if (at < first) {
        first = at;
        spelling = candidate;
      }
    }
    text(words.substr(0, first));
    if (spelling.empty()) return;
    marker(spelling);
    words.remove_prefix(first + spelling.size());
  }
}

}  // namespace bathys::tokenizer
