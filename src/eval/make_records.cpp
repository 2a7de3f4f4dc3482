// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "eval/json_text.hpp"
#include "eval/task.hpp"
#include "eval/text_cut.hpp"

#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

struct Usage {
  std::int64_t prompt_tokens = 0;
  std::int64_t completion_tokens = 0;
  std::int64_t reasoning_tokens = 0;
};

const char* json_flag(bool value) { return value ? "true" : "false"; }

// What every result line begins with, whatever became of it.
std::string head(const Request& request, std::int32_t repeat, bool ok) {
  return fmt::format(R"({{"custom_id":{},"repeat":{},"kind":"{}","request_sha256":"{}","ok":{})",
                     json_string(request.custom_id), request.first_repeat + repeat, request.kind(), request.sha256,
                     json_flag(ok));
}

std::string tail(const Usage& usage) {
  return fmt::format(R"(,"usage":{{"prompt_tokens":{},"completion_tokens":{},"reasoning_tokens":{}}}}})",
                     usage.prompt_tokens, usage.completion_tokens, usage.reasoning_tokens);
}

Record success(const Request& request, std::int32_t repeat, const std::string& result, const Usage& usage) {
  return {repeat, true, fmt::format(R"({},"result":{}{})", head(request, repeat, true), result, tail(usage))};
}

Record failure(const Request& request, std::int32_t repeat, const RecordFailure& cause, const Usage& usage) {
  return {repeat, false,
          fmt::format(R"({},"error":{{"code":{},"message":{}}}{})", head(request, repeat, false),
                      json_string(cause.code), json_string(cause.message), tail(usage))};
}

// Sums in double, in token order.
double sum_of(const std::vector<engine::TokenScore>& scores) {
  return std::accumulate(scores.begin(), scores.end(), 0.0,
                         [](double sum, const auto& score) { return sum + double{score.logprob}; });
}

void append_logprobs(std::vector<std::string>& out, const std::vector<engine::TokenScore>& scores) {
  for (const auto& score : scores) out.push_back(json_number(double{score.logprob}));
}

std::string loglikelihood_result(const Loglikelihood& body, const PreparedTask& task, const engine::JobResult& result,
                                 Usage& usage) {
  std::vector<std::string> sums, greedy, counts, token_lists;
  for (const auto& scores : result.scores) {
    bool all_greedy = true;
    for (const auto& score : scores) all_greedy = all_greedy && score.greedy;
    sums.push_back(json_number(sum_of(scores)));
    greedy.emplace_back(json_flag(all_greedy));
    counts.push_back(fmt::format("{}", scores.size()));
    usage.completion_tokens += std::ssize(scores);
    std::vector<std::string> tokens;
    append_logprobs(tokens, scores);
    token_lists.push_back(json_list(tokens));
  }
  std::string text = fmt::format(R"({{"logprob":{},"is_greedy":{},"n_tokens":{},"truncated":{})", json_list(sums),
                                 json_list(greedy), json_list(counts), json_integers(task.truncated));
  if (body.token_logprobs) text += fmt::format(R"(,"token_logprobs":{})", json_list(token_lists));
  return text + "}";
}

std::string rolling_result(const Rolling& body, const PreparedTask& task, const engine::JobResult& result,
                           Usage& usage) {
  double sum = 0;
  std::vector<std::string> tokens;
  for (const auto& scores : result.scores) {
    for (const auto& score : scores) sum += double{score.logprob};
    usage.completion_tokens += std::ssize(scores);
    append_logprobs(tokens, scores);
  }
  std::string text =
      fmt::format(R"({{"logprob":{},"n_tokens":{},"n_windows":{},"n_words":{},"n_bytes":{})", json_number(sum),
                  usage.completion_tokens, result.scores.size(), task.n_words, task.n_bytes);
  if (body.token_logprobs) text += fmt::format(R"(,"token_logprobs":{})", json_list(tokens));
  return text + "}";
}

// The fewest leading tokens whose text covers `bytes` bytes.
std::int64_t tokens_covering(const tokenizer::Tokenizer& tokenizer, const TokenIds& ids, std::size_t bytes) {
  tokenizer::StreamDecoder decoder(tokenizer, true);
  std::size_t covered = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    if (covered >= bytes) return static_cast<std::int64_t>(i);
    covered += decoder.push(ids[i]).size();
  }
  return std::ssize(ids);
}

std::string logprobs_list(const engine::Generated& generated) {
  std::vector<std::string> out;
  for (const auto& token : generated.tokens) {
    std::vector<std::string> top;
    for (const auto& [id, logprob] : token.top)
      top.push_back(fmt::format(R"({{"id":{},"logprob":{}}})", id, json_number(double{logprob})));
    out.push_back(fmt::format(R"({{"id":{},"logprob":{},"top":{}}})", token.id, json_number(double{token.logprob}),
                              json_list(top)));
  }
  return json_list(out);
}

// What was asked for beside the text.
std::string token_members(const Generate& body, const TokenIds& ids, const engine::Generated& generated) {
  std::string text;
  if (body.token_ids) text += fmt::format(R"(,"token_ids":{})", json_integers(ids));
  if (body.logprobs || body.top_logprobs > 0) text += fmt::format(R"(,"logprobs":{})", logprobs_list(generated));
  return text + "}";
}

bool begins_thinking(tokenizer::AnswerStart start) {
  return start == tokenizer::AnswerStart::reasoning || start == tokenizer::AnswerStart::continued_reasoning;
}

// A chat's answer: reasoning to the FIRST marker, content, calls; stops count behind the reasoning.
std::string chat_result(const Generate& body, const PreparedTask& task, const TaskContext& context,
                        const engine::Generated& generated, Usage& usage) {
  TokenIds ids;
  for (const auto& token : generated.tokens) ids.push_back(token.id);
  usage.completion_tokens = std::ssize(ids) + (generated.finish == engine::Finish::eos ? 1 : 0);
  std::string text = context.tokenizer->decode(ids, true);
  Thought thought;
  if (begins_thinking(task.answer_start)) thought = split_first_thought(text, task.with_calls);
  usage.reasoning_tokens =
      thought.in_thinking ? usage.completion_tokens : tokens_covering(*context.tokenizer, ids, thought.reasoning_bytes);
  CutText cut{text.substr(thought.reasoning_bytes), std::nullopt};
  if (!thought.in_thinking) cut = cut_at_stops(std::move(cut.text), body.until);
  const tokenizer::Answer answer =
      tokenizer::parse_answer(text.substr(0, thought.reasoning_bytes) + cut.text, task.answer_start, task.with_calls);
  if (!cut.stop && generated.finish == engine::Finish::eos) cut.stop = "eos";
  std::vector<std::string> calls;
  for (const auto& call : answer.calls) {
    calls.push_back(
        fmt::format(R"({{"name":{},"arguments":{}}})", json_string(call.name), json_string(call.arguments)));
  }
  const char* finish = cut.stop || generated.finish != engine::Finish::length ? "stop" : "length";
  if (!calls.empty() && generated.finish == engine::Finish::eos) finish = "tool_calls";
  std::string result = fmt::format(
      R"({{"text":{},"reasoning":{},"tool_calls":{},"finish_reason":"{}","stop":{},"in_thinking":{})",
      json_string(answer.content), begins_thinking(task.answer_start) ? json_string(answer.reasoning) : "null",
      json_list(calls), finish, cut.stop ? json_string(*cut.stop) : "null", json_flag(thought.in_thinking));
  return result + token_members(body, ids, generated);
}

std::string generate_result(const Generate& body, const TaskContext& context, const engine::Generated& generated,
                            Usage& usage) {
  TokenIds ids;
  for (const auto& token : generated.tokens) ids.push_back(token.id);
  usage.completion_tokens = std::ssize(ids) + (generated.finish == engine::Finish::eos ? 1 : 0);
  Thought thought{context.tokenizer->decode(ids, true), std::nullopt, 0, false};
  if (body.think_end) {
    thought = split_thought(thought.text, *body.think_end);
    usage.reasoning_tokens = thought.in_thinking ? usage.completion_tokens
                                                 : tokens_covering(*context.tokenizer, ids, thought.reasoning_bytes);
  }
  CutText cut{thought.text, std::nullopt};
  if (!thought.in_thinking) {
    std::vector<std::string> stops = body.until;
    stops.emplace_back(context.tokenizer->token_text(context.eos));
    cut = cut_at_stops(std::move(thought.text), stops);
    if (cut.stop == stops.back()) cut.stop = "eos";  // the marker spelled out counts as the token
  }
  if (!cut.stop && generated.finish == engine::Finish::eos) cut.stop = "eos";
  const bool stopped = cut.stop || generated.finish != engine::Finish::length;
  std::string text = fmt::format(R"({{"text":{},"reasoning":{},"finish_reason":"{}","stop":{},"in_thinking":{})",
                                 json_string(cut.text), thought.reasoning ? json_string(*thought.reasoning) : "null",
                                 stopped ? "stop" : "length", cut.stop ? json_string(*cut.stop) : "null",
                                 json_flag(thought.in_thinking));
  return text + token_members(body, ids, generated);
}

RecordFailure not_finite() { return {"nonfinite_value", "a log-probability is not finite"}; }

bool all_finite(const std::vector<std::vector<engine::TokenScore>>& scores) {
  for (const auto& continuation : scores) {
    for (const auto& score : continuation) {
      if (!std::isfinite(score.logprob)) return false;
    }
  }
  return true;
}

bool all_finite(const std::vector<engine::DrawnToken>& tokens) {
  for (const auto& token : tokens) {
    if (!std::isfinite(token.logprob)) return false;
    for (const auto& [id, logprob] : token.top) {
      if (!std::isfinite(logprob)) return false;
    }
  }
  return true;
}

std::optional<RecordFailure> failure_of(const PreparedTask& task, const engine::JobResult& result) {
  if (task.failure) return task.failure;
  if (result.failure) return RecordFailure{result.failure->code, result.failure->message};
  if (!all_finite(result.scores)) return not_finite();
  return std::nullopt;
}

}  // namespace

std::vector<Record> make_records(const Request& request, const PreparedTask& task, const TaskContext& context,
                                 std::span<const std::int32_t> repeats, const engine::JobResult& result) {
  std::vector<Record> records;
  const auto cause = failure_of(task, result);
  if (cause) {
    for (const std::int32_t repeat : repeats) {
      records.push_back(failure(request, repeat, *cause, {task.prompt_tokens, 0, 0}));
      if (result.failure) records.back().cache_bytes = result.failure->cache_bytes;
    }
    return records;
  }
  Usage usage{task.prompt_tokens, 0, 0};
  if (const auto* scored = std::get_if<Loglikelihood>(&request.body)) {
    const std::string text = loglikelihood_result(*scored, task, result, usage);
    records.push_back(success(request, 0, text, usage));
  } else if (const auto* rolling = std::get_if<Rolling>(&request.body)) {
    const std::string text = rolling_result(*rolling, task, result, usage);
    records.push_back(success(request, 0, text, usage));
  } else {
    const auto& body = std::get<Generate>(request.body);
    for (const auto& generated : result.generated) {
      usage = {task.prompt_tokens, 0, 0};
      const std::int32_t repeat = generated.repeat - request.first_repeat;
      if (generated.failure) {
        records.push_back(failure(request, repeat, {generated.failure->code, generated.failure->message}, usage));
        continue;
      }
      if (!all_finite(generated.tokens)) {  // of one repeat: which others were drawn beside it changes no answer
        records.push_back(failure(request, repeat, not_finite(), usage));
        continue;
      }
      const std::string text = request.dialect == Dialect::chat ? chat_result(body, task, context, generated, usage)
                                                                : generate_result(body, context, generated, usage);
      records.push_back(success(request, repeat, text, usage));
    }
  }
  require(records.size() == repeats.size(), ExitCode::internal,
          "request {}: the engine gave {} answers, {} were asked for; please report this", request.custom_id,
          records.size(), repeats.size());
  return records;
}

}  // namespace bathys::eval
