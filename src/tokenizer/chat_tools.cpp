// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/chat_fields.hpp"
#include "tokenizer/python_json.hpp"

#include <algorithm>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr std::size_t kMaxName = 128;

bool is_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

std::string read_name(const Json& json, const std::string& where) {
  const std::string* name = chat_string(json, "name");
  if (name == nullptr || !is_name(*name)) {
    refuse_parameter(fmt::format("{}.name {}, expected 1 to {} letters, digits, _ and -", where,
                                 shown_member(chat_member(json, "name")), kMaxName));
  }
  return *name;
}

std::string read_description(const Json& json, const std::string& where) {
  if (chat_member(json, "description") == nullptr) return {};
  const std::string* description = chat_string(json, "description");
  if (description == nullptr) {
    refuse_parameter(fmt::format("{}.description {}, expected a string", where, shown(json.at("description"))));
  }
  return *description;
}

// `used`: tool_choice is not "none".  Only then does anybody follow the schema.
Tool read_function(const Json& json, const std::string& where, bool used) {
  Tool tool{read_name(json, where), read_description(json, where), Json::object()};
  const Json* strict = chat_member(json, "strict");
  if (strict != nullptr && !strict->is_boolean()) {
    refuse_parameter(fmt::format("{}.strict {}, expected true or false", where, shown(*strict)));
  }
  if (!used) return tool;
  if (const Json* parameters = chat_member(json, "parameters")) {
    const std::string* type = chat_string(*parameters, "type");
    if (type == nullptr || *type != "object") {
      refuse_parameter(fmt::format(R"({}.parameters {}, expected "type": "object")", where, shown(*parameters)));
    }
    tool.parameters = *parameters;
  }
  // The service rewrites such schemas before the model sees them; so it has no one spelling to follow.
  if (strict != nullptr && *strict == true) refuse_parameter(where + ".strict true, expected false");
  return tool;
}

void read_namespace(const Json& json, const std::string& where, bool used, std::vector<Tool>& tools) {
  const std::string space = read_name(json, where);
  const std::string about = read_description(json, where);
  const Json* members = chat_member(json, "tools");
  if (members == nullptr || !members->is_array()) {
    refuse_parameter(fmt::format("{}.tools {}, expected a list", where, shown_member(members)));
  }
  for (std::size_t i = 0; i < members->size(); ++i) {
    const Json& member = (*members)[i];
    const std::string member_where = fmt::format("{}.tools[{}]", where, i);
    const std::string* type = chat_string(member, "type");
    if (type == nullptr || *type != "function") {
      refuse_parameter(
          fmt::format("{}.type {}, expected function", member_where, shown_member(chat_member(member, "type"))));
    }
    Tool tool = read_function(member, member_where, used);
    tool.name = space + "::" + tool.name;
    if (!about.empty()) tool.description = about + "\n" + tool.description;
    tools.push_back(std::move(tool));
  }
}

std::vector<Tool> read_list(const Json& body, bool used) {
  std::vector<Tool> tools;
  const Json* list = chat_member(body, "tools");
  if (list == nullptr) return tools;
  if (!list->is_array()) refuse_parameter(fmt::format("tools {}, expected a list", shown(*list)));
  for (std::size_t i = 0; i < list->size(); ++i) {
    const Json& entry = (*list)[i];
    const std::string where = fmt::format("tools[{}]", i);
    const std::string* type = chat_string(entry, "type");
    if (type != nullptr && *type == "namespace") {
      read_namespace(entry, where, used, tools);
      continue;
    }
    const Json* function = chat_member(entry, "function");
    if (type == nullptr || *type != "function" || function == nullptr) {
      refuse_parameter(where + R"(, expected {"type": "function", "function": {...}})");
    }
    tools.push_back(read_function(*function, where + ".function", used));
  }
  for (auto tool = tools.begin(); tool != tools.end(); ++tool) {
    if (std::any_of(tools.begin(), tool, [&](const Tool& before) { return before.name == tool->name; })) {
      refuse_parameter(fmt::format("tools, two of which are named {}", shown(tool->name)));
    }
  }
  return tools;
}

// The one function that tool_choice names; empty where it is a word.
std::string read_choice(const Json& choice) {
  if (choice == "none" || choice == "auto" || choice == "required") return {};
  const std::string* type = chat_string(choice, "type");
  const Json* function = chat_member(choice, "function");
  const std::string* name = function == nullptr ? nullptr : chat_string(*function, "name");
  if (type == nullptr || *type != "function" || name == nullptr) {
    refuse_parameter(fmt::format("tool_choice {}, expected none, auto, required or a function", shown(choice)));
  }
  return *name;
}

void keep_chosen(const std::string& name, std::vector<Tool>& tools) {
  std::erase_if(tools, [&](const Tool& tool) { return tool.name != name; });
  if (tools.empty()) refuse_parameter(fmt::format("tool_choice {}, which is not among tools", shown(name)));
}

bool says_json(const ChatMessage& message) {
  constexpr std::string_view kWord = "json";
  const auto same = [](char a, char b) { return (a >= 'A' && a <= 'Z' ? a - 'A' + 'a' : a) == b; };
  return std::any_of(message.content.begin(), message.content.end(), [&](const PromptPart& part) {
    return std::search(part.text.begin(), part.text.end(), kWord.begin(), kWord.end(), same) != part.text.end();
  });
}

}  // namespace

void read_tools(const Json& body, Conversation& conversation) {
  const Json* choice = chat_member(body, "tool_choice");
  const std::string chosen = choice == nullptr ? std::string() : read_choice(*choice);
  conversation.tools = read_list(body, choice == nullptr || *choice != "none");
  if (conversation.tools.empty()) return;  // a choice among none says nothing
  if (conversation.messages.back().prefix) {
    refuse_messages("the last message is a prefix, which does not go with tools");
  }
  if (choice != nullptr) {
    if (*choice == "none") {
      conversation.tools.clear();
    } else if (*choice == "required") {
      conversation.must_call = true;
    } else if (*choice != "auto") {
      keep_chosen(chosen, conversation.tools);
      conversation.must_call = true;
    }
  }
  if (conversation.must_call && !conversation.messages.back().task.empty()) {
    refuse_messages("the last message has a task, which does not go with tool_choice that demands a call");
  }
  if (conversation.must_call && conversation.thinking) {
    refuse_parameter("tool_choice that demands a call while thinking; disable thinking");
  }
}

void read_response_format(const Json& body, Conversation& conversation) {
  const Json* format = chat_member(body, "response_format");
  if (format == nullptr) return;
  const std::string* type = chat_string(*format, "type");
  if (type != nullptr && *type == "text") return;
  if (type != nullptr && *type == "json_object") {
    if (conversation.messages.back().prefix) {
      refuse_messages("the last message is a prefix, which does not go with response_format json_object");
    }
    if (std::none_of(conversation.messages.begin(), conversation.messages.end(), says_json)) {
      refuse_messages("no message says json, which response_format json_object wants");
    }
    conversation.response_schema = R"({"type": "json_object"})";
    return;
  }
  if (type == nullptr || *type != "json_schema") {
    refuse_parameter(fmt::format("response_format {}, expected type text, json_object or json_schema", shown(*format)));
  }
  const Json* holder = chat_member(*format, "json_schema");
  const Json* schema = holder == nullptr ? nullptr : chat_member(*holder, "schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) {
    refuse_parameter(R"(response_format, expected {"json_schema": {"schema": {...}}})");
  }
  const Json* name = chat_member(*holder, "name");
  const Json* strict = chat_member(*holder, "strict");
  if ((name != nullptr && !name->is_string()) || (strict != nullptr && !strict->is_boolean())) {
    refuse_parameter(
        fmt::format("response_format, whose json_schema has name {} and strict {}, expected a string and "
                    "true or false",
                    shown_member(name), shown_member(strict)));
  }
  conversation.response_schema = python_json(*schema);
}

}  // namespace bathys::tokenizer
