// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/conversation.hpp"

#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// What is said about tools and the answer's form at the end of the first system message, each after a blank line;
// nothing where there are none.
void write_tools(PromptWriter& out, const std::vector<Tool>& tools);
void write_response_format(PromptWriter& out, std::string_view schema);

// The block of calls that ends an assistant's turn; nothing without calls.  Names and values that are strings stand as
// they are, other values as JSON.
void write_calls(PromptWriter& out, const std::vector<ToolCall>& calls);

}  // namespace bathys::tokenizer
