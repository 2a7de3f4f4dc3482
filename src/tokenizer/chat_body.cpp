// SPDX-License-Identifier: Apache-2.0
// read_conversation: from the JSON of a chat request to what is said in it.
#include "tokenizer/chat_fields.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr int kDefaultEffort = 75;
// The names of the chat interface; "none" is kept apart.
constexpr std::array<std::pair<std::string_view, int>, 7> kEfforts = {
    {{"minimal", 50}, {"low", 50}, {"medium", 75}, {"high", 75}, {"xhigh", 75}, {"ultra", 100}, {"max", 100}}};

std::optional<bool> read_thinking(const Json& body) {
  const Json* thinking = chat_member(body, "thinking");
  if (thinking == nullptr) return std::nullopt;
  if (thinking->is_boolean()) return thinking->get<bool>();
  const Json* type = chat_member(*thinking, "type");
  if (type != nullptr && *type == "disabled") return false;
  if (type != nullptr && (*type == "enabled" || *type == "adaptive")) return true;
  refuse_parameter(
      fmt::format(R"(thinking {}, expected true, false or {{"type": "enabled" | "disabled"}})", shown(*thinking)));
}

// Nothing: the effort is "none".
std::optional<int> read_effort(const Json& body) {
  const Json* effort = chat_member(body, "effort");
  const Json* other = chat_member(body, "reasoning_effort");
  if (effort == nullptr) effort = other;
  if (effort == nullptr) return kDefaultEffort;
  if (other != nullptr && *other != *effort) {
    refuse_parameter(fmt::format("effort {} beside reasoning_effort {}, which are names of one parameter; give one",
                                 shown(*effort), shown(*other)));
  }
  if (effort->is_string()) {
    const auto& word = effort->get_ref<const std::string&>();
    if (word == "none") return std::nullopt;
    for (const auto& [name, value] : kEfforts) {
      if (word == name) return value;
    }
  }
  if (effort->is_number_integer()) {
    const auto value = effort->get<std::int64_t>();
    if (value >= 1 && value <= 100) return static_cast<int>(value);
  }
  refuse_parameter(fmt::format("effort {}, expected none, minimal, low, medium, high, xhigh, ultra, max or 1 to 100",
                               shown(*effort)));
}

}  // namespace

Conversation read_conversation(const Json& body) {
  Conversation conversation;
  read_messages(body, conversation);
  const std::optional<int> effort = read_effort(body);
  conversation.effort = effort.value_or(kDefaultEffort);
  conversation.thinking = read_thinking(body).value_or(effort.has_value());
  if (const Json* drop = chat_member(body, "drop_thinking")) {
    if (!drop->is_boolean()) refuse_parameter(fmt::format("drop_thinking {}, expected true or false", shown(*drop)));
    conversation.drop_thinking = drop->get<bool>();
  }
  read_tools(body, conversation);
  read_response_format(body, conversation);
  return conversation;
}

}  // namespace bathys::tokenizer
