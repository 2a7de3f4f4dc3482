// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/job.hpp"
#include "eval/request.hpp"
#include "tokenizer/answer_parser.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

// A request as work for the engine, and the engine's answer as a record.  Pure functions of their arguments: every rank
// makes the same jobs, and a record holds nothing that could differ between two runs.
namespace bathys::eval {

// Of the way from a request to tokens and from the model's answer to a record (splitting, truncation, windows, stops,
// cuts, members of a record), the prompt's encoding and the numbers apart, which have versions of their own.  Raise it
// with any change after which some record is another one; a resume compares it.
inline constexpr std::string_view kRecordVersion = "1";

// Why one request cannot be answered; the run goes on.  Codes: continuation_too_long empty_continuation
// context_length_exceeded does_not_fit unsupported_parameter invalid_messages nonfinite_value.
struct RecordFailure {
  std::string code;
  std::string message;
};

// What turning requests into tokens needs.
struct TaskContext {
  const tokenizer::Tokenizer* tokenizer = nullptr;
  std::int32_t bos = 0;
  std::int32_t eos = 1;
  std::int32_t prefix_token = 0;  // stands for an empty context and before the first rolling window
};

struct PreparedTask {
  std::optional<RecordFailure> failure;
  std::variant<std::monostate, engine::ScoreJob, engine::GenerateJob>
      job;                                // none: answered without the model, or failed
  std::int64_t prompt_tokens = 0;         // the context once
  std::vector<std::int64_t> truncated;    // loglikelihood: tokens dropped on the left, per continuation
  std::int64_t n_words = 0, n_bytes = 0;  // rolling
  // Chat completions: where in the answer the prompt stops, and whether calls of tools are looked for.
  tokenizer::AnswerStart answer_start = tokenizer::AnswerStart::content;
  bool with_calls = false;
};

// `repeats`: the answers wanted of a generation (those not on record yet), counted from 0 for each request; the job has
// their numbers among the answers of the line.  Jobs get tag 0.
PreparedTask prepare_task(const Request& request, const TaskContext& context, std::span<const std::int32_t> repeats);

// One answer: the result line of (custom_id, repeat) as JSON text, still without its "meta", which the request file
// has.
struct Record {
  std::int32_t repeat = 0;  // counted from 0 for each request; the text has the number among the answers of the line
  bool ok = true;
  std::string text;
  std::int64_t cache_bytes = 0;  // of what did not fit: the caches that it takes
};

// The records of a finished job, one per repeat asked for.  `result` is ignored where the task needed no job.
std::vector<Record> make_records(const Request& request, const PreparedTask& task, const TaskContext& context,
                                 std::span<const std::int32_t> repeats, const engine::JobResult& result);

}  // namespace bathys::eval
