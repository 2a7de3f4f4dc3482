// SPDX-License-Identifier: Apache-2.0
#include "eval/chat_prompt.hpp"

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "eval/task.hpp"

namespace bathys::eval {
namespace {

constexpr std::string_view kSystem = "<｜System｜>";
constexpr std::string_view kUser = "<｜User｜>";
constexpr std::string_view kAssistant = "<｜Assistant｜>";
constexpr std::string_view kThoughtEnd = "</think>";

[[noreturn]] void unsupported(std::string_view what) {
  throw RecordFailure{"unsupported_parameter", fmt::format("{} in messages is not available in this version", what)};
}

void require_chat_mode(const Json& body) {
  for (const char* option : {"tools", "response_format", "drop_thinking"}) {
    if (body.contains(option)) unsupported(option);
  }
  const Json thinking = body.contains("thinking") ? body["thinking"] : Json(true);
  const bool disabled = thinking == false || (thinking.is_object() && thinking["type"] == "disabled");
  const bool no_effort = body.contains("effort") && body["effort"] == "none";
  if (!disabled && !no_effort) unsupported("thinking (on unless \"thinking\" is false)");
}

struct Message {
  std::string role;
  std::string content;
  bool prefix = false;  // an unfinished answer, to be continued
};

Message read_message(const Json& json, std::size_t index, std::size_t count) {
  const auto invalid = [&](std::string_view words) {
    throw RecordFailure{"invalid_messages", fmt::format("message {}: {}", index, words)};
  };
  if (!json.is_object() || !json.contains("role") || !json["role"].is_string()) invalid("expected an object with a role");
  Message message{json["role"].get<std::string>(), "", false};
  for (const auto& [key, value] : json.items()) {
    if (key == "prefix" && value.is_boolean() && message.role == "assistant" && index + 1 == count) {
      message.prefix = value.get<bool>();
    } else if (key != "role" && key != "content" && key != "name") {
      unsupported(key);
    }
  }
  if (message.role != "system" && message.role != "user" && message.role != "assistant") unsupported(fmt::format("role {}", message.role));
  if (!json.contains("content")) invalid("content is missing");
  if (json["content"].is_array()) unsupported("content in parts");
  if (!json["content"].is_string()) invalid("content is no string");
  message.content = json["content"].get<std::string>();
  return message;
}

class PromptBuilder {
 public:
  explicit PromptBuilder(const tokenizer::Tokenizer& tokenizer) : tokenizer_(tokenizer) {}
  void id(std::int32_t token) { ids_.push_back(token); }
  void marker(std::string_view spelling) {
    const auto token = tokenizer_.token_id(spelling);
    if (!token) throw RecordFailure{"unsupported_parameter", fmt::format("messages need the token {}, which this tokenizer lacks", spelling)};
    ids_.push_back(*token);
  }
  void text(std::string_view text) { tokenizer_.encode_to(text, false, ids_); }
  TokenIds take() { return std::move(ids_); }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  TokenIds ids_;
};

}  // namespace

TokenIds encode_chat(const tokenizer::Tokenizer& tokenizer, const Messages& messages, std::int32_t bos, std::int32_t eos) {
  require_chat_mode(messages.body);
  const Json& list = messages.body["messages"];
  if (list.empty()) throw RecordFailure{"invalid_messages", "the list of messages is empty"};
  PromptBuilder prompt(tokenizer);
  prompt.id(bos);
  bool answer_open = false;  // the last message is an answer to be continued
  for (std::size_t i = 0; i < list.size(); ++i) {
    Message message = read_message(list[i], i, list.size());
    if (message.role == "assistant") {
      prompt.marker(kAssistant);
      prompt.marker(kThoughtEnd);
      prompt.text(message.content);
      answer_open = message.prefix;
      if (!answer_open) prompt.id(eos);
    } else if (message.role == "user") {
      // Adjacent user messages stand under one marker, a blank line between them.
      while (i + 1 < list.size() && list[i + 1].is_object() && list[i + 1].contains("role") && list[i + 1]["role"] == "user") {
        ++i;
        message.content += "\n\n" + read_message(list[i], i, list.size()).content;
      }
      prompt.marker(kUser);
      prompt.text(message.content);
    } else if (i > 0 || !message.content.empty()) {
      prompt.marker(kSystem);
      prompt.text(message.content);
    }
  }
  if (!answer_open) {
    prompt.marker(kAssistant);
    prompt.marker(kThoughtEnd);
  }
  return prompt.take();
}

}  // namespace bathys::eval
