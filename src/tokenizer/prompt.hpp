// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "tokenizer/tokenizer.hpp"

#include <stdexcept>
#include <string>
#include <vector>

namespace bathys::tokenizer {

// Why a conversation cannot be encoded; `code` is one of the results' error codes (invalid_messages,
// unsupported_parameter).
class PromptError : public std::runtime_error {
 public:
  PromptError(std::string code, const std::string& words) : std::runtime_error(words), code_(std::move(code)) {}
  [[nodiscard]] const std::string& code() const noexcept { return code_; }

 private:
  std::string code_;
};

enum class Role { system, user, assistant, latest_reminder };

struct ChatMessage {
  Role role = Role::user;
  std::string content;
  std::string reasoning;  // of an assistant's turn
  bool prefix = false;    // an assistant's turn that is to be continued; only the last message
};

struct Conversation {
  std::vector<ChatMessage> messages;
  bool thinking = true;
  int effort = 75;            // 1 .. 100, said to the model when thinking
  bool drop_thinking = true;  // leave out the reasoning of finished turns
};

// A stretch of a prompt: the spelling of one marker token, or text in which such spellings mean nothing.
struct PromptPart {
  std::string text;
  bool marker = false;
};

// Reads `messages` (contents are strings or lists of text parts, joined by a blank line) and the options `thinking`
// (true, false or
// {"type": "enabled" | "disabled" | "adaptive"}), `effort` or `reasoning_effort` ("none", "minimal" .. "max", or 1 ..
// 100) and `drop_thinking`.  Effort "none" turns thinking off where `thinking` does not say otherwise.  Other members
// of `body` are the caller's; tools, response formats and images are refused as unsupported.
//   throws PromptError
Conversation read_conversation(const Json& body);

// The prompt as DeepSeek's own encoding writes it, up to where the model's answer begins:
//   * BOS; when thinking, a system header with the effort line (not before a conversation of empty system messages);
//   * a header per system, user and reminder message; system messages without text vanish, neighbouring user messages
//   join
//     with a blank line under one header, of neighbouring reminders the first counts;
//   * an assistant's turn is <think>reasoning</think> or </think>, content, EOS.  With drop_thinking only a turn to be
//     continued keeps its reasoning, and not as the first message; without content it stays inside <think>;
//   * unless the last turn is to be continued, a new assistant header with <think> or </think>.
std::vector<PromptPart> render_prompt(const Conversation& conversation);

// Ids of the rendered prompt: markers by their token, text between them without the added vocabulary, each stretch by
// itself.
//   throws PromptError(unsupported_parameter) naming a marker that the tokenizer lacks
std::vector<TokenId> encode_prompt(const Tokenizer& tokenizer, const Conversation& conversation);

}  // namespace bathys::tokenizer
