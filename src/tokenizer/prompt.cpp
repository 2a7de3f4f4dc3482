// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt.hpp"

#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kReminder = "<｜latest_reminder｜>";
constexpr std::string_view kThink = "<think>";
constexpr std::string_view kThinkEnd = "</think>";
constexpr std::string_view kBlankLine = "\n\n";

std::string effort_line(int effort) {
  return fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                     effort);
}

class PromptWriter {
 public:
  void marker(std::string_view spelling) { parts_.push_back({std::string(spelling), true}); }
  // Adjoining texts are one stretch: the tokenizer may merge across.
  void text(std::string_view text) {
    if (text.empty()) return;
    if (parts_.empty() || parts_.back().marker) parts_.push_back({{}, false});
    parts_.back().text += text;
  }
  void header(std::string_view spelling, std::string_view content) {
    marker(spelling);
    text(content);
  }
  std::vector<PromptPart> take() { return std::move(parts_); }

 private:
  std::vector<PromptPart> parts_;
};

void write_turn(PromptWriter& out, const ChatMessage& message, bool keep_reasoning) {
  out.marker(kAssistant);
  if (keep_reasoning) {
    out.header(kThink, message.reasoning);
    if (message.prefix && message.content.empty()) return;
  }
  out.header(kThinkEnd, message.content);
  if (!message.prefix) out.marker(kEos);
}

// System messages without text say nothing, and later reminders in a row neither.
std::vector<ChatMessage> messages_that_speak(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> out;
  for (const ChatMessage& message : messages) {
    const bool repeats = !out.empty() && out.back().role == message.role;
    if (message.role == Role::system && message.content.empty()) continue;
    if (message.role == Role::latest_reminder && repeats) continue;
    if (message.role == Role::user && repeats) {
      out.back().content.append(kBlankLine).append(message.content);
    } else {
      out.push_back(message);
    }
  }
  return out;
}

}  // namespace

std::vector<PromptPart> render_prompt(const Conversation& conversation) {
  const std::vector<ChatMessage> messages = messages_that_speak(conversation.messages);
  PromptWriter out;
  out.marker(kBos);
  if (conversation.thinking && !messages.empty()) out.header(kSystem, effort_line(conversation.effort));
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    switch (message.role) {
      case Role::system:
        if (i > 0 || !conversation.thinking) out.marker(kSystem);  // else the effort's header is its own
        out.text(message.content);
        break;
      case Role::user:
        out.header(kUser, message.content);
        break;
      case Role::latest_reminder:
        out.header(kReminder, message.content);
        break;
      case Role::assistant:
        write_turn(out, message, conversation.thinking && (!conversation.drop_thinking || (message.prefix && i > 0)));
        break;
    }
  }
  if (messages.empty() || !messages.back().prefix) {
    out.marker(kAssistant);
    out.marker(conversation.thinking ? kThink : kThinkEnd);
  }
  return out.take();
}

std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Conversation& conversation) {
  std::vector<TokenId> ids;
  for (const PromptPart& part : render_prompt(conversation)) {
    if (!part.marker) {
      tokenizer.encode_to(part.text, false, ids);
      continue;
    }
    const auto id = tokenizer.token_id(part.text);
    if (!id)
      throw PromptError("unsupported_parameter",
                        fmt::format("messages need the token {}, which this tokenizer lacks", part.text));
    ids.push_back(*id);
  }
  return ids;
}

}  // namespace bathys::tokenizer
