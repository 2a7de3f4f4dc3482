// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/request.hpp"
#include "eval/request_fields.hpp"
#include "eval/request_reader.hpp"

#include <string_view>
#include <vector>

// Requests in the words of the OpenAI interface, with its defaults: temperature 1, and no context is shortened.
// A parameter that this program does not implement passes with the value that changes nothing; with another one
// request.unsupported is set, and the request fails alone.
namespace bathys::eval {

inline constexpr std::string_view kCompletionsUrl = "/v1/completions";
inline constexpr std::string_view kChatUrl = "/v1/chat/completions";

// The prompts of a /v1/completions body: a string, token ids, or a list of either.
//   throws LineFault
std::vector<Generate> read_completions(RequestFields& fields, const RequestRules& rules, Request& request);

// A /v1/chat/completions body; without a limit of tokens the answer may take what max_length leaves.
//   request   its max_length is known
//   throws LineFault
Generate read_chat_completion(RequestFields& fields, const RequestRules& rules, Request& request);

}  // namespace bathys::eval
