// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace bathys::tokenizer {

inline constexpr std::string_view kThink = "<think>";
inline constexpr std::string_view kThinkEnd = "</think>";
inline constexpr std::string_view kDsml = "｜DSML｜";  // inside the tags of tool calls
inline constexpr std::string_view kBlankLine = "\n\n";

// A stretch of a prompt: the spelling of one marker token, or text in which such spellings mean nothing.
struct PromptPart {
  std::string text;
  bool marker = false;

  bool operator==(const PromptPart&) const = default;
};

// Collects the parts of a prompt.  Adjoining texts are one stretch: the tokenizer may merge across.
class PromptWriter {
 public:
  void marker(std::string_view spelling) { parts_.push_back({std::string(spelling), true}); }
  void text(std::string_view text);
  void parts(const std::vector<PromptPart>& parts);
  // Our own words, in which <think>, </think> and ｜DSML｜ are markers.
  void words(std::string_view words);

  std::vector<PromptPart> take() { return std::move(parts_); }

 private:
  std::vector<PromptPart> parts_;
};

}  // namespace bathys::tokenizer
