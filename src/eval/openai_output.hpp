// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

// The answers to OpenAI lines in that interface's own form, made from the records of the run.
namespace bathys::eval {

// What all answers of a run share.
struct OpenAiContext {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  std::int64_t created = 0;  // the run's first start, seconds since 1970
};

// One answer of a line: its record, the n-th of its prompt.
struct OpenAiAnswer {  // NOLINT(bugprone-exception-escape): Json's move, which does not throw
  std::int32_t index = 0;
  Json record;
};

// A line of the output or of the error file, with its newline.  Ids are made of the request's hash, so they are the
// same on every run.
struct OpenAiLine {
  bool ok = true;
  std::string text;
};

// `request`: the line's first one; `answers`: all of the line, by index.  A line with a failed answer is an error, and
// the first failure is its cause.
OpenAiLine openai_line(const Request& request, const std::vector<OpenAiAnswer>& answers, const OpenAiContext& context);

// Seconds since 1970 of "2026-01-31T12:00:00Z"; 0 for anything else.
[[nodiscard]] std::int64_t unix_seconds(const std::string& utc);

}  // namespace bathys::eval
