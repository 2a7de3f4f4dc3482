// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/prompt.hpp"

#include "tokenizer/chat_turns.hpp"
#include "tokenizer/dsml.hpp"
#include "tokenizer/prompt_tools.hpp"

#include <string>
#include <string_view>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr std::string_view kBos = "<｜begin▁of▁sentence｜>";
constexpr std::string_view kEos = "<｜end▁of▁sentence｜>";
constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kReminder = "<｜latest_reminder｜>";

std::string effort_line(int effort) {
  return fmt::format("Reasoning Effort: {} (range 1-100, the higher the value, the more thorough the reasoning)\n\n",
                     effort);
}

void write_reply(PromptWriter& out, const ChatMessage& message) {
  out.parts(message.content);
  write_calls(out, message.calls);
  if (!message.prefix) out.marker(kEos);
}

void write_turn(PromptWriter& out, const ChatMessage& message, bool keep_reasoning) {
  out.marker(kAssistant);
  if (keep_reasoning) {
    out.marker(kThink);
    out.text(message.reasoning);
    if (message.prefix && message.content.empty()) return;
  }
  out.marker(kThinkEnd);
  write_reply(out, message);
}

void write_answer_header(PromptWriter& out, bool thinking) {
  out.marker(kAssistant);
  out.marker(thinking ? kThink : kThinkEnd);
}

void write_task(PromptWriter& out, const std::string& task, bool thinking) {
  if (task == "action") write_answer_header(out, thinking);
  out.marker(fmt::format("<｜{}｜>", task));
}

// Whether what comes after turn `i` is an answer to its task rather than more to read.
bool task_is_next(const std::vector<ChatMessage>& turns, std::size_t i) {
  if (turns[i].task.empty()) return false;
  return i + 1 == turns.size() || turns[i + 1].role == Role::assistant || turns[i + 1].role == Role::latest_reminder;
}

void write_turns(PromptWriter& out, const Conversation& conversation, const std::vector<ChatMessage>& turns) {
  const bool drop = conversation.drop_thinking && conversation.tools.empty();
  for (std::size_t i = 0; i < turns.size(); ++i) {
    const ChatMessage& turn = turns[i];
    if (turn.role == Role::assistant) {
      if (i > 0 && !turns[i - 1].task.empty()) {
        write_reply(out, turn);
      } else {
        write_turn(out, turn, conversation.thinking && (!drop || (turn.prefix && i > 0)));
      }
    } else {
      if (turn.role == Role::user) out.marker(kUser);
      if (turn.role == Role::latest_reminder) out.marker(kReminder);
      // When thinking, the header of the effort is that of a leading system turn.
      if (turn.role == Role::system && (i > 0 || !conversation.thinking)) out.marker(kSystem);
      out.parts(turn.content);
    }
    if (i == 0) {
      write_tools(out, conversation.tools);
      write_response_format(out, conversation.response_schema);
    }
    if (task_is_next(turns, i)) write_task(out, turn.task, conversation.thinking);
  }
}

}  // namespace

std::vector<PromptPart> render_prompt(const Conversation& conversation) {
  std::vector<ChatMessage> turns = join_turns(conversation.messages);
  const bool has_instructions = !conversation.tools.empty() || !conversation.response_schema.empty();
  if (has_instructions && (turns.empty() || turns.front().role != Role::system)) {
    turns.emplace(turns.begin())->role = Role::system;
  }
  PromptWriter out;
  out.marker(kBos);
  if (conversation.thinking && !turns.empty()) {
    out.marker(kSystem);
    out.text(effort_line(conversation.effort));
  }
  write_turns(out, conversation, turns);
  const bool continues = !turns.empty() && (turns.back().prefix || !turns.back().task.empty());
  if (!continues) {
    write_answer_header(out, conversation.thinking);
    if (conversation.must_call) out.words(dsml::kCallsOpen);
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
