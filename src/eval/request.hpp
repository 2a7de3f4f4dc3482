// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

// One line of a request file, read and checked.  docs/file_formats.md describes the file.
namespace bathys::eval {

using TokenIds = std::vector<std::int32_t>;

// A chat: the members of the body that make up its prompt (messages, thinking, effort, tools, tool_choice,
// response_format, drop_thinking).
struct Messages {
  Json body;
};
// What stands before the tokens that are scored or drawn.
using Context = std::variant<std::string, TokenIds, Messages>;

// One log-probability per continuation of a context.
struct Loglikelihood {
  Context context;
  std::variant<std::vector<std::string>, std::vector<TokenIds>> continuations;  // at least one
  bool token_logprobs = false;
  std::optional<std::int64_t> gold;  // index of the right continuation
};

// The log-probability of a whole text, in windows of max_length.
struct Rolling {
  std::variant<std::string, TokenIds> text;
  bool token_logprobs = false;
};

// Tokens drawn after a context.
struct Generate {
  Context context;
  std::vector<std::string> until;  // in the given order, no empty ones
  std::int64_t max_gen_toks = 256;
  bool fill_length = false;      // the limit is what max_length leaves behind the prompt, max_gen_toks at most
  bool whole_context = false;    // a context that does not fit fails; else its beginning is left out
  double temperature = 0;        // 0: greedy
  bool sampled_at_zero = false;  // do_sample is true all the same: greedy, and maybe an oversight
  double top_p = 1;
  std::optional<std::string> think_end;
  std::int32_t repeats = 1;
  bool logprobs = false;  // list the drawn tokens' log-probabilities; top_logprobs > 0 does so too
  int top_logprobs = 0;
  bool token_ids = false;
  std::optional<std::vector<std::string>> gold;  // texts that count as right
};

// Whose words a request is written in, and its answer.
enum class Dialect { own, completions, chat };

// One line, or one prompt of a /v1/completions line that has several: those stand one after the other, with equal
// custom_id and consecutive repeats.
struct Request {
  std::int64_t line = 0;  // counted by "\n" from 1
  std::string custom_id;
  Dialect dialect = Dialect::own;
  std::string sha256;  // of the line's bytes without its "\n" (a "\r" before it is part of the line), 64 hex digits
  std::string meta;    // JSON text exactly as in the line; "null" when absent
  std::string task;    // name to group reports by; may be empty
  std::uint64_t seed = 0;
  std::int64_t max_length = 0;
  bool add_bos = false;                    // put BOS before a context that does not start with it
  std::string model;                       // OpenAI lines: the name of the model that the answer repeats
  std::int32_t first_repeat = 0;           // number of the first answer among those of the line
  std::optional<std::string> unsupported;  // why it fails: a parameter that asks for what this program does not do
  std::variant<Loglikelihood, Rolling, Generate> body;

  // Answers wanted: repeats of a generation, else 1.
  [[nodiscard]] std::int32_t n_repeats() const {
    const auto* generate = std::get_if<Generate>(&body);
    return generate == nullptr ? 1 : generate->repeats;
  }
  [[nodiscard]] const char* kind() const {
    constexpr const char* kNames[] = {"loglikelihood", "loglikelihood_rolling", "generate_until"};
    if (dialect != Dialect::own) return dialect == Dialect::chat ? "chat_completion" : "completion";
    return kNames[body.index()];
  }
};

}  // namespace bathys::eval
