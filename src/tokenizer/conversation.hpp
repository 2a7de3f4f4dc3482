// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "tokenizer/prompt_part.hpp"

#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace bathys::tokenizer {

// Why a conversation cannot be encoded; `code` is one of the results' error codes (invalid_messages,
// unsupported_parameter).
class PromptError : public std::runtime_error {
 public:
  PromptError(std::string code, const std::string& words) : std::runtime_error(words), code_(std::move(code)) {}
  [[nodiscard]] const std::string& code() const noexcept { return code_; }

 private:
  std::string code_;
};

enum class Role { system, user, assistant, tool, latest_reminder };

// A call that an assistant made.
struct ToolCall {
  std::string id;
  std::string name;
  std::string arguments;  // JSON of an object; anything else counts as one argument named "arguments"
};

// A function that the model may call.
struct Tool {
  std::string name;  // "space::name" for a member of a namespace
  std::string description;
  Json parameters;  // JSON schema, as given
};

struct ChatMessage {
  Role role = Role::user;
  std::vector<PromptPart> content;  // texts, and a marker for each image
  std::string reasoning;            // of an assistant's turn
  std::vector<ToolCall> calls;      // of an assistant's turn
  std::string call_id;              // of a tool's result
  std::string task;                 // what the model shall do with the message; empty: answer it
  bool prefix = false;              // an assistant's turn that is to be continued; only the last message
};

struct Conversation {
  std::vector<ChatMessage> messages;
  std::vector<Tool> tools;
  std::string response_schema;  // as JSON text; empty: any form of answer
  bool thinking = true;
  int effort = 75;            // 1 .. 100, said to the model when thinking
  bool drop_thinking = true;  // leave out the reasoning of finished turns; without effect where there are tools
  bool must_call = false;     // the answer is a call of a tool; never with thinking
  int n_images = 0;           // markers of images in all messages
};

// Reads the members of a chat request that shape its prompt; others are the caller's.
//   messages         role system, user, assistant, tool or latest_reminder; content a string or a list of parts (text,
//                    image_url), joined by blank lines; an assistant's reasoning_content, tool_calls, prefix; a
//                    tool's tool_call_id; task (action, query, authority, domain, title, read_url)
//   tools            {"type": "function", "function": {name, description, parameters}} or
//                    {"type": "namespace", name, description, "tools": [{"type": "function", name, ...}]}
//   tool_choice      "auto", "none" (as without tools), "required" or one function: then the others are not shown
//   response_format  {"type": "text" | "json_object" | "json_schema", "json_schema": {"schema": ...}}
//   thinking         true, false or {"type": "enabled" | "disabled" | "adaptive"}
//   effort           or reasoning_effort: "none", "minimal" .. "max", or 1 .. 100; "none" turns thinking off where
//                    `thinking` does not say otherwise
//   drop_thinking    true or false
// An assistant's calls must be answered, all of them and at once, by the tool messages that follow.
//   throws PromptError
Conversation read_conversation(const Json& body);

}  // namespace bathys::tokenizer
