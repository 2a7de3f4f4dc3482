// SPDX-License-Identifier: Apache-2.0
// read_conversation: from the JSON of a chat request to what is said in it.
#include "tokenizer/prompt.hpp"

#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr int kDefaultEffort = 75;
// The names of the chat interface; "none" is kept apart.
constexpr std::array<std::pair<std::string_view, int>, 6> kEfforts = {
    {{"minimal", 50}, {"low", 50}, {"medium", 75}, {"high", 75}, {"xhigh", 75}, {"max", 100}}};
constexpr std::array<std::pair<std::string_view, Role>, 4> kRoles = {{{"system", Role::system},
                                                                      {"user", Role::user},
                                                                      {"assistant", Role::assistant},
                                                                      {"latest_reminder", Role::latest_reminder}}};

[[noreturn]] void invalid(const std::string& words) { throw PromptError("invalid_messages", words); }
[[noreturn]] void unsupported(const std::string& words) { throw PromptError("unsupported_parameter", words); }

// A member that is there and not null.
const Json* member(const Json& object, std::string_view key) {
  const auto found = object.find(std::string(key));
  return found == object.end() || found->is_null() ? nullptr : &*found;
}

std::string read_content(const Json& content, const std::string& where) {
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) invalid(where + ": content is neither a string nor a list of parts");
  std::string text;
  for (const Json& part : content) {
    const Json* type = part.is_object() ? member(part, "type") : nullptr;
    if (type == nullptr || !type->is_string()) invalid(where + ": a part of content has no type");
    if (*type != "text") unsupported(fmt::format("{}: content of type {}", where, type->dump()));
    const Json* words = member(part, "text");
    if (words == nullptr || !words->is_string()) invalid(where + ": a text part has no text");
    if (&part != &content.front()) text += "\n\n";
    text += words->get<std::string>();
  }
  return text;
}

Role read_role(const Json& message, const std::string& where) {
  const Json* role = message.is_object() ? member(message, "role") : nullptr;
  if (role == nullptr || !role->is_string()) invalid(where + ": expected an object with a role");
  for (const auto& [name, value] : kRoles) {
    if (*role == name) return value;
  }
  if (*role == "tool") unsupported(where + ": role tool");
  invalid(fmt::format("{}: role {} is unknown", where, role->dump()));
}

ChatMessage read_message(const Json& json, std::size_t index, bool last) {
  const std::string where = fmt::format("message {}", index);
  ChatMessage message;
  message.role = read_role(json, where);
  const Json* content = member(json, "content");
  if (content == nullptr) invalid(where + ": content is missing");
  message.content = read_content(*content, where);
  if (message.role != Role::assistant) return message;
  if (member(json, "tool_calls") != nullptr) unsupported(where + ": tool_calls");
  if (const Json* reasoning = member(json, "reasoning_content")) {
    if (!reasoning->is_string()) invalid(where + ": reasoning_content is no string");
    message.reasoning = reasoning->get<std::string>();
  }
  if (const Json* prefix = member(json, "prefix")) {
    if (!prefix->is_boolean()) invalid(where + ": prefix is neither true nor false");
    message.prefix = prefix->get<bool>();
    if (message.prefix && !last) invalid(where + ": only the last message can be a prefix");
  }
  return message;
}

std::optional<bool> read_thinking(const Json& body) {
  const Json* thinking = member(body, "thinking");
  if (thinking == nullptr) return std::nullopt;
  if (thinking->is_boolean()) return thinking->get<bool>();
  const Json* type = thinking->is_object() ? member(*thinking, "type") : nullptr;
  if (type != nullptr && *type == "disabled") return false;
  if (type != nullptr && (*type == "enabled" || *type == "adaptive")) return true;
  unsupported(R"(thinking, expected true, false or {"type": "enabled" | "disabled"})");
}

// Nothing: the effort is "none".
std::optional<int> read_effort(const Json& body) {
  const Json* effort = member(body, "effort");
  if (effort == nullptr) effort = member(body, "reasoning_effort");
  if (effort == nullptr) return kDefaultEffort;
  if (*effort == "none") return std::nullopt;
  for (const auto& [name, value] : kEfforts) {
    if (*effort == name) return value;
  }
  if (effort->is_number_integer()) {
    const auto value = effort->get<std::int64_t>();
    if (value >= 1 && value <= 100) return static_cast<int>(value);
  }
  unsupported(
      fmt::format("effort {}, expected none, minimal, low, medium, high, xhigh, max or 1 to 100", effort->dump()));
}

}  // namespace

Conversation read_conversation(const Json& body) {
  const Json* messages = body.is_object() ? member(body, "messages") : nullptr;
  if (messages == nullptr || !messages->is_array()) invalid("messages is no list");
  if (messages->empty()) invalid("the list of messages is empty");
  if (const Json* tools = member(body, "tools"); tools != nullptr && *tools != Json::array()) unsupported("tools");
  if (const Json* format = member(body, "response_format")) {
    const Json* type = format->is_object() ? member(*format, "type") : nullptr;
    if (type == nullptr || *type != "text") unsupported("response_format");
  }
  Conversation conversation;
  for (std::size_t i = 0; i < messages->size(); ++i) {
    conversation.messages.push_back(read_message((*messages)[i], i, i + 1 == messages->size()));
  }
  const std::optional<int> effort = read_effort(body);
  conversation.effort = effort.value_or(kDefaultEffort);
  conversation.thinking = read_thinking(body).value_or(effort.has_value());
  if (const Json* drop = member(body, "drop_thinking")) {
    if (!drop->is_boolean()) unsupported("drop_thinking, expected true or false");
    conversation.drop_thinking = drop->get<bool>();
  }
  return conversation;
}

}  // namespace bathys::tokenizer
