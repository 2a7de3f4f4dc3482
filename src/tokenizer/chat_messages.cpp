// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat_fields.hpp"

#include <algorithm>
#include <array>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr std::string_view kImage = "<｜deepseek_image｜>";
constexpr std::array<std::pair<std::string_view, Role>, 5> kRoles = {{{"system", Role::system},
                                                                      {"user", Role::user},
                                                                      {"assistant", Role::assistant},
                                                                      {"tool", Role::tool},
                                                                      {"latest_reminder", Role::latest_reminder}}};
constexpr std::array<std::string_view, 6> kTasks = {"action", "query", "authority", "domain", "title", "read_url"};

void read_image(const Json& part, Role role, const std::string& where) {
  if (role == Role::assistant || role == Role::latest_reminder) {
    refuse_messages(where + ": only system, user and tool messages have images");
  }
  const Json* image = chat_member(part, "image_url");
  if (image == nullptr || chat_string(*image, "url") == nullptr) {
    refuse_messages(where + R"(: an image part has no {"image_url": {"url": ...}})");
  }
  constexpr std::array<std::string_view, 4> kDetails = {"low", "high", "original", "auto"};
  const Json* detail = chat_member(*image, "detail");
  const std::string* word = chat_string(*image, "detail");
  if (detail != nullptr && (word == nullptr || std::find(kDetails.begin(), kDetails.end(), *word) == kDetails.end())) {
    refuse_messages(
        fmt::format("{}: detail of an image is {}, expected low, high, original or auto", where, shown(*detail)));
  }
}

std::vector<PromptPart> read_content(const Json& content, Role role, const std::string& where) {
  PromptWriter out;
  if (content.is_string()) {
    out.text(content.get_ref<const std::string&>());
    return out.take();
  }
  if (role == Role::latest_reminder) {
    refuse_messages(fmt::format("{}: content is {}, expected a string", where, shown(content)));
  }
  if (!content.is_array()) {
    refuse_messages(fmt::format("{}: content is {}, expected a string or a list of parts", where, shown(content)));
  }
  for (const Json& part : content) {
    const std::string* type = chat_string(part, "type");
    if (type == nullptr) refuse_messages(where + ": a part of content has no type");
    if (&part != &content.front()) out.text(kBlankLine);
    if (*type == "image_url") {
      read_image(part, role, where);
      out.marker(kImage);
    } else if (*type == "text") {
      const std::string* text = chat_string(part, "text");
      if (text == nullptr) refuse_messages(where + ": a text part has no text");
      out.text(*text);
    } else {
      refuse_parameter(fmt::format("{}: content of type {}", where, shown(*type)));
    }
  }
  return out.take();
}

std::vector<ToolCall> read_calls(const Json& json, const std::string& where) {
  std::vector<ToolCall> calls;
  const Json* list = chat_member(json, "tool_calls");
  if (list == nullptr) return calls;
  if (!list->is_array() || list->empty()) {
    refuse_messages(fmt::format("{}: tool_calls is {}, expected a list of calls", where, shown(*list)));
  }
  for (const Json& entry : *list) {
    const std::string* type = chat_string(entry, "type");
    const std::string* id = chat_string(entry, "id");
    const Json* function = chat_member(entry, "function");
    const std::string* name = function == nullptr ? nullptr : chat_string(*function, "name");
    const std::string* arguments = function == nullptr ? nullptr : chat_string(*function, "arguments");
    if (type == nullptr || *type != "function" || id == nullptr || name == nullptr || arguments == nullptr) {
      refuse_messages(where + R"(: a call is no {"id", "type": "function", "function": {"name", "arguments"}} of )" +
                      "strings");
    }
    if (std::any_of(calls.begin(), calls.end(), [id](const ToolCall& call) { return call.id == *id; })) {
      refuse_messages(fmt::format("{}: two calls have the id {}", where, shown(*id)));
    }
    calls.push_back({*id, *name, *arguments});
  }
  return calls;
}

Role read_role(const Json& message, const std::string& where) {
  const std::string* role = chat_string(message, "role");
  if (role == nullptr) refuse_messages(where + ": expected an object with a role");
  for (const auto& [name, value] : kRoles) {
    if (*role == name) return value;
  }
  refuse_messages(fmt::format("{}: role {} is unknown", where, shown(*role)));
}

void read_turn(const Json& json, bool last, const std::string& where, ChatMessage& message) {
  message.calls = read_calls(json, where);
  if (const Json* reasoning = chat_member(json, "reasoning_content")) {
    if (!reasoning->is_string()) {
      refuse_messages(fmt::format("{}: reasoning_content is {}, expected a string", where, shown(*reasoning)));
    }
    message.reasoning = reasoning->get<std::string>();
  }
  if (const Json* prefix = chat_member(json, "prefix")) {
    if (!prefix->is_boolean()) {
      refuse_messages(fmt::format("{}: prefix is {}, expected true or false", where, shown(*prefix)));
    }
    message.prefix = prefix->get<bool>();
    if (message.prefix && !last) refuse_messages(where + ": only the last message can be a prefix");
  }
}

std::string read_task(const Json& task, const std::string& where) {
  const std::string* name = task.is_string() ? &task.get_ref<const std::string&>() : nullptr;
  if (name == nullptr || std::find(kTasks.begin(), kTasks.end(), *name) == kTasks.end()) {
    refuse_parameter(
        fmt::format("{}: task {}, expected action, query, authority, domain, title or read_url", where, shown(task)));
  }
  return *name;
}

ChatMessage read_message(const Json& json, bool last, const std::string& where) {
  ChatMessage message;
  message.role = read_role(json, where);
  if (chat_member(json, "tools") != nullptr) refuse_parameter(where + ": tools stand beside messages, not in one");
  if (message.role == Role::assistant) read_turn(json, last, where, message);
  if (message.role == Role::tool) {
    const std::string* id = chat_string(json, "tool_call_id");
    if (id == nullptr) refuse_messages(where + ": a tool message has no tool_call_id");
    message.call_id = *id;
  }
  if (const Json* task = chat_member(json, "task")) {
    message.task = read_task(*task, where);
    if (message.role == Role::tool) refuse_messages(where + ": a tool message has no task; give it to a user message");
    if (message.prefix) refuse_messages(where + ": a prefix is to be continued, it has no task");
  }
  const Json* name = chat_member(json, "name");
  if (name != nullptr && !name->is_string() && message.role != Role::tool && message.role != Role::latest_reminder) {
    refuse_messages(fmt::format("{}: name is {}, expected a string", where, shown(*name)));
  }
  const Json* content = chat_member(json, "content");
  if (content != nullptr) {
    message.content = read_content(*content, message.role, where);
  } else if (message.calls.empty()) {
    refuse_messages(where + ": content is missing");
  }
  if (message.role == Role::system && message.content.empty() && !message.task.empty()) {
    refuse_messages(where + ": an empty system message is left out, so it has no task");
  }
  return message;
}

// Each tool message answers a call of the assistant's turn before it, and no call stays open.
void check_results(const std::vector<ChatMessage>& messages) {
  std::set<std::string> open;
  for (std::size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role == Role::tool) {
      if (open.erase(message.call_id) == 0) {
        refuse_messages(fmt::format("message {}: {} is no call that waits for a result", i, shown(message.call_id)));
      }
      continue;
    }
    if (!open.empty()) refuse_messages(fmt::format("message {}: calls before it have no result", i));
    for (const ToolCall& call : message.calls) open.insert(call.id);
  }
  if (!open.empty()) refuse_messages("the last calls have no result");
}

}  // namespace

void read_messages(const Json& body, Conversation& conversation) {
  const Json* list = chat_member(body, "messages");
  if (list == nullptr || !list->is_array()) {
    refuse_messages(fmt::format("messages is {}, expected a list", shown_member(list)));
  }
  if (list->empty()) refuse_messages("the list of messages is empty");
  bool after_reminder = false;  // the last message that counts is one
  for (std::size_t i = 0; i < list->size(); ++i) {
    const std::string where = fmt::format("message {}", i);
    ChatMessage message = read_message((*list)[i], i + 1 == list->size(), where);
    const bool reminds = message.role == Role::latest_reminder;
    if (reminds && after_reminder && !message.task.empty()) {
      refuse_messages(where + ": of latest_reminders in a row the first counts, so this one has no task");
    }
    if (message.role != Role::system || !message.content.empty()) after_reminder = reminds;
    conversation.n_images += static_cast<int>(std::count_if(message.content.begin(), message.content.end(),
                                                            [](const PromptPart& part) { return part.marker; }));
    conversation.messages.push_back(std::move(message));
  }
  check_results(conversation.messages);
  const bool has_calls = std::any_of(conversation.messages.begin(), conversation.messages.end(),
                                     [](const ChatMessage& message) { return !message.calls.empty(); });
  if (has_calls && conversation.messages.back().prefix) {
    refuse_messages("the last message is a prefix, which does not go with calls of tools");
  }
}

}  // namespace bathys::tokenizer
