// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/conversation.hpp"
#include "tokenizer/prompt_part.hpp"
#include "tokenizer/tokenizer.hpp"

#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// Of the encoding of conversations.  Change it with any change after which some conversation has other ids (or is
// refused, or no longer refused): a resume compares it, so that prompts of two encodings never meet in one run.
inline constexpr std::string_view kPromptVersion = "chat-2";

// The prompt as DeepSeek's own encoding writes it, up to where the model's answer begins:
//   * BOS; when thinking, a system header with the effort line (not before a conversation of empty system messages);
//   * a header per turn (chat_turns.hpp); tools and the form of the answer stand at the end of a leading system turn,
//     which is added where there is none;
//   * an assistant's turn is <think>reasoning</think> or </think>, content, calls, EOS.  Reasoning of finished turns is
//     kept where there are tools or drop_thinking is off; a turn to be continued keeps it unless it is the first, and
//     without content stays inside <think>;
//   * unless the last turn is to be continued, a new assistant header with <think> or </think>, and the opening tag of
//     calls where one is demanded;
//   * the token of a task follows its message; that of "action" stands behind an assistant header.  What answers a task
//     has neither header nor reasoning.
std::vector<PromptPart> render_prompt(const Conversation& conversation);

// Ids of the rendered prompt: markers by their token, text between them without the added vocabulary, each stretch by
// itself.  An image is one placeholder.
//   throws PromptError(unsupported_parameter) naming a marker that the tokenizer lacks
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Conversation& conversation);

}  // namespace bathys::tokenizer
