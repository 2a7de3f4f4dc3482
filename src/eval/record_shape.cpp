// SPDX-License-Identifier: Apache-2.0
#include "eval/record_shape.hpp"

#include <algorithm>
#include <cstddef>
#include <variant>

namespace bathys::eval {
namespace {

bool is_text(const Json& value) { return value.is_string(); }
bool is_text_or_null(const Json& value) { return value.is_string() || value.is_null(); }
bool is_flag(const Json& value) { return value.is_boolean(); }
bool is_count(const Json& value) { return value.is_number_integer() && value.get<std::int64_t>() >= 0; }
bool is_number(const Json& value) { return value.is_number(); }

template <class Is>
bool has(const Json& object, const char* name, Is is) {
  const auto found = object.find(name);
  return found != object.end() && is(*found);
}

// A list whose elements all are what they should be; `n` of them where that is known.
template <class Is>
bool has_list(const Json& object, const char* name, Is is, std::ptrdiff_t n = -1) {
  const auto found = object.find(name);
  return found != object.end() && found->is_array() && (n < 0 || std::ssize(*found) == n) &&
         std::all_of(found->begin(), found->end(), is);
}

bool is_token(const Json& value) {
  return value.is_object() && has(value, "id", is_count) && has(value, "logprob", is_number);
}
bool is_drawn_token(const Json& value) { return is_token(value) && has_list(value, "top", is_token); }
bool is_call(const Json& value) {
  return value.is_object() && has(value, "name", is_text) && has(value, "arguments", is_text);
}

bool is_result(const Loglikelihood& body, const Json& result) {
  const auto n = std::visit([](const auto& continuations) { return std::ssize(continuations); }, body.continuations);
  return has_list(result, "logprob", is_number, n) && has_list(result, "is_greedy", is_flag, n) &&
         has_list(result, "n_tokens", is_count, n) && has_list(result, "truncated", is_count, n);
}

bool is_result(const Rolling& /*body*/, const Json& result) {
  return has(result, "logprob", is_number) && has(result, "n_tokens", is_count) && has(result, "n_windows", is_count) &&
         has(result, "n_words", is_count) && has(result, "n_bytes", is_count);
}

bool is_result(const Generate& body, const Json& result) {
  return has(result, "text", is_text) && has(result, "reasoning", is_text_or_null) &&
         has(result, "finish_reason", is_text) && has(result, "stop", is_text_or_null) &&
         has(result, "in_thinking", is_flag) && (!body.token_ids || has_list(result, "token_ids", is_count)) &&
         (!(body.logprobs || body.top_logprobs > 0) || has_list(result, "logprobs", is_drawn_token));
}

}  // namespace

bool is_whole_record(const Request& request, const Json& record, const Json& item) {
  const auto is_usage = [](const Json& usage) {
    return usage.is_object() && has(usage, "prompt_tokens", is_count) && has(usage, "completion_tokens", is_count) &&
           has(usage, "reasoning_tokens", is_count);
  };
  const auto is_answer = [&](const Json& result) {
    return result.is_object() && std::visit([&](const auto& body) { return is_result(body, result); }, request.body) &&
           (request.dialect != Dialect::chat || has_list(result, "tool_calls", is_call));
  };
  const auto is_cause = [](const Json& error) {
    return error.is_object() && has(error, "code", is_text) && has(error, "message", is_text);
  };
  const auto is_kind = [&](const Json& kind) { return kind == request.kind(); };
  if (!record.is_object() || !has(record, "custom_id", is_text) || !has(record, "repeat", is_count) ||
      !has(record, "kind", is_kind) || !has(record, "request_sha256", is_text) || !has(record, "ok", is_flag) ||
      !has(record, "usage", is_usage))
    return false;
  const bool ok = record["ok"].get<bool>();
  if (ok ? !has(record, "result", is_answer) : !has(record, "error", is_cause)) return false;
  return item.is_object() && has(item, "seconds", is_number);
}

}  // namespace bathys::eval
