// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat_turns.hpp"

#include <algorithm>
#include <span>

namespace bathys::tokenizer {
namespace {

void append_results(PromptWriter& out, std::span<const ChatMessage> results, const std::vector<ToolCall>& calls) {
  bool first = true;
  for (const ToolCall& call : calls) {
    for (const ChatMessage& result : results) {
      if (result.call_id != call.id) continue;
      if (!first) out.text(kBlankLine);
      out.text("<tool_result>");
      out.parts(result.content);
      out.text("</tool_result>");
      first = false;
    }
  }
}

void add_user(std::vector<ChatMessage>& turns, const ChatMessage& message) {
  if (turns.empty() || turns.back().role != Role::user || !turns.back().task.empty()) {
    turns.push_back(message);
    return;
  }
  PromptWriter joined;
  joined.parts(turns.back().content);
  joined.text(kBlankLine);
  joined.parts(message.content);
  turns.back().content = joined.take();
  turns.back().task = message.task;
}

}  // namespace

std::vector<ChatMessage> join_turns(const std::vector<ChatMessage>& messages) {
  std::vector<ChatMessage> turns;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == Role::system && message.content.empty()) continue;
    if (message.role == Role::latest_reminder && !turns.empty() && turns.back().role == message.role) continue;
    if (message.role == Role::user) {
      add_user(turns, message);
    } else if (message.role == Role::tool) {
      const auto begin = messages.begin() + static_cast<std::ptrdiff_t>(i);
      const auto end =
          std::find_if(begin, messages.end(), [](const ChatMessage& other) { return other.role != Role::tool; });
      PromptWriter results;
      append_results(results, std::span(begin, end), messages[i - 1].calls);  // read_conversation: calls stand before
      ChatMessage turn;
      turn.content = results.take();
      turns.push_back(std::move(turn));
      i += static_cast<std::size_t>(end - begin) - 1;
    } else {
      turns.push_back(message);
    }
  }
  return turns;
}

}  // namespace bathys::tokenizer
