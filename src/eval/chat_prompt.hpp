// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/request.hpp"
#include "tokenizer/tokenizer.hpp"

namespace bathys::eval {

// The prompt of a chat without thinking: BOS, then each message under its role's marker, text between markers encoded without the added
// vocabulary, and the assistant's marker with a closed thought at the end.  Roles system, user, assistant; contents are strings.
//   throws RecordFailure: invalid_messages; unsupported_parameter for what this version cannot encode (thinking, tools, response_format, ..)
TokenIds encode_chat(const tokenizer::Tokenizer& tokenizer, const Messages& messages, std::int32_t bos, std::int32_t eos);

}  // namespace bathys::eval
