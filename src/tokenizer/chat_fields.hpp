// SPDX-License-Identifier: Apache-2.0
// What the readers of a chat body share.
#pragma once

#include "core/shown.hpp"
#include "tokenizer/conversation.hpp"

#include <string>
#include <string_view>

namespace bathys::tokenizer {

[[noreturn]] inline void refuse_messages(const std::string& words) { throw PromptError("invalid_messages", words); }
[[noreturn]] inline void refuse_parameter(const std::string& words) {
  throw PromptError("unsupported_parameter", words);
}

// A member that is there and not null.
inline const Json* chat_member(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

// A member that is a string, or nothing.
inline const std::string* chat_string(const Json& object, std::string_view key) {
  const Json* value = chat_member(object, key);
  return value == nullptr || !value->is_string() ? nullptr : &value->get_ref<const std::string&>();
}

// What a message says that it found: the value, or "missing".
inline std::string shown_member(const Json* value) { return value == nullptr ? "missing" : shown(*value); }

// Reads messages into conversation.messages and n_images.
void read_messages(const Json& body, Conversation& conversation);

// Reads tools, tool_choice and response_format into tools, must_call and response_schema, once messages are there.
void read_tools(const Json& body, Conversation& conversation);
void read_response_format(const Json& body, Conversation& conversation);

}  // namespace bathys::tokenizer
