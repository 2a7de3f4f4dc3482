// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/conversation.hpp"

#include <vector>

namespace bathys::tokenizer {

// Messages as turns, each with a header of its own:
//   * system messages without text vanish, and of neighbouring reminders the first counts;
//   * the results of tools become one user turn of <tool_result>...</tool_result>, in the order of the calls;
//   * neighbouring user turns join by a blank line, unless the earlier one has a task.
std::vector<ChatMessage> join_turns(const std::vector<ChatMessage>& messages);

}  // namespace bathys::tokenizer
