// SPDX-License-Identifier: Apache-2.0
#include "eval/openai_request.hpp"

#include "core/shown.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

constexpr std::int64_t kDefaultCompletionTokens = 16;
constexpr double kMaxTemperature = 2;

// A parameter that is not implemented, with the values that change nothing (JSON texts).
struct Neutral {
  const char* key;
  std::vector<const char*> values;
};
const std::vector<Neutral>& neutral_everywhere() {
  static const std::vector<Neutral> table = {{"stream", {"false"}},
                                             {"stream_options", {}},
                                             {"presence_penalty", {"0"}},
                                             {"frequency_penalty", {"0"}},
                                             {"logit_bias", {"{}"}}};
  return table;
}
const std::vector<Neutral>& neutral_in_completions() {
  static const std::vector<Neutral> table = {{"suffix", {R"("")"}}, {"echo", {"false"}}};
  return table;
}
const std::vector<Neutral>& neutral_in_chats() {
  static const std::vector<Neutral> table = {{"parallel_tool_calls", {"true"}},
                                             {"functions", {"[]"}},
                                             {"function_call", {R"("none")", R"("auto")"}},
                                             {"modalities", {R"(["text"])"}},
                                             {"audio", {}},
                                             {"prediction", {}},
                                             {"web_search_options", {}},
                                             {"verbosity", {R"("medium")"}}};
  return table;
}
// Concern the service that keeps the request, not the answer: any value passes.
constexpr const char* kServiceKeys[] = {
    "user", "metadata", "store", "service_tier", "safety_identifier", "prompt_cache_key", "prompt_cache_retention"};
// Shape the prompt of a chat; read_conversation judges their values.
constexpr const char* kPromptKeys[] = {"thinking", "reasoning_effort", "tools", "tool_choice", "response_format"};

void check_neutral(RequestFields& fields, const std::vector<Neutral>& table, Request& request) {
  for (const Neutral& neutral : table) {
    if (!fields.given(neutral.key)) continue;
    const Json& value = fields.any(neutral.key);
    const bool passes = std::any_of(neutral.values.begin(), neutral.values.end(),
                                    [&](const char* text) { return value == Json::parse(text); });
    if (passes || request.unsupported) continue;
    std::string accepted = "null";
    for (const char* text : neutral.values) accepted.append(" or ").append(text);
    request.unsupported = fmt::format("{} is {}; this program has no such parameter, it passes only as {}", neutral.key,
                                      shown(value), accepted);
  }
}

void read_sampling(RequestFields& fields, Request& request, Generate& body) {
  body.whole_context = true;
  body.temperature = 1;
  if (fields.given("temperature")) body.temperature = fields.number("temperature", 0, true, kMaxTemperature);
  if (fields.given("top_p")) body.top_p = fields.number("top_p", 0, false, 1);
  if (fields.given("n")) body.repeats = static_cast<std::int32_t>(fields.integer("n", 1, kMaxRepeats));
  if (fields.given("stop")) body.until = fields.text_or_texts("stop");
  std::erase(body.until, std::string());
  for (const char* key : kServiceKeys) static_cast<void>(fields.given(key));
  check_neutral(fields, neutral_everywhere(), request);
}

void name_model(RequestFields& fields, const RequestRules& rules, Request& request) {
  if (fields.given("model")) {
    request.model = fields.text("model");
  } else if (!rules.model_names.empty()) {
    request.model = rules.model_names.front();
  }
}

std::vector<Context> read_prompts(RequestFields& fields, const RequestRules& rules) {
  const Json& prompt = fields.any("prompt");
  if (prompt.is_string()) return {fields.text("prompt")};
  if (!prompt.is_array() || prompt.empty()) fields.refuse("prompt", "a string, token ids, or a list of either");
  std::vector<Context> contexts;
  if (prompt.front().is_string()) {
    for (std::string& text : fields.texts("prompt")) contexts.emplace_back(std::move(text));
  } else if (prompt.front().is_array()) {
    for (TokenIds& ids : fields.lists_of_ids("prompt", rules.vocab_size)) contexts.emplace_back(std::move(ids));
  } else {
    contexts.emplace_back(fields.ids("prompt", rules.vocab_size));
  }
  return contexts;
}

}  // namespace

std::vector<Generate> read_completions(RequestFields& fields, const RequestRules& rules, Request& request) {
  request.dialect = Dialect::completions;
  name_model(fields, rules, request);
  Generate body;
  read_sampling(fields, request, body);
  body.max_gen_toks = kDefaultCompletionTokens;
  if (fields.given("max_tokens")) body.max_gen_toks = fields.integer("max_tokens", 0, kMaxDrawnTokens);
  if (fields.given("logprobs")) {
    body.logprobs = true;
    body.top_logprobs = static_cast<int>(fields.integer("logprobs", 0, kMaxTopLogprobs));
  }
  check_neutral(fields, neutral_in_completions(), request);
  // The best n of n are all of them.
  const bool all_wanted = fields.given("best_of") && fields.any("best_of") == body.repeats;
  if (!all_wanted) check_neutral(fields, {{"best_of", {"1"}}}, request);
  std::vector<Generate> bodies;
  for (Context& context : read_prompts(fields, rules)) {
    bodies.push_back(body);
    bodies.back().context = std::move(context);
  }
  if (static_cast<std::int64_t>(bodies.size()) * body.repeats > kMaxRepeats) {
    fields.refuse("prompt", fmt::format("at most {} answers to one line, n for each prompt", kMaxRepeats));
  }
  return bodies;
}

Generate read_chat_completion(RequestFields& fields, const RequestRules& rules, Request& request) {
  request.dialect = Dialect::chat;
  name_model(fields, rules, request);
  Generate body;
  read_sampling(fields, request, body);
  check_neutral(fields, neutral_in_chats(), request);
  if (!fields.any("messages").is_array()) fields.refuse("messages", "a list of messages");
  Messages messages;
  messages.body["messages"] = fields.any("messages");
  for (const char* key : kPromptKeys) {
    if (fields.given(key)) messages.body[key] = fields.any(key);
  }
  body.context = std::move(messages);
  body.fill_length = true;
  body.max_gen_toks = request.max_length;
  for (const char* key : {"max_completion_tokens", "max_tokens"}) {  // the older name goes first, as everywhere
    if (!fields.given(key)) continue;
    body.max_gen_toks = fields.integer(key, 0, kMaxDrawnTokens);
    body.fill_length = false;
  }
  body.logprobs = fields.flag("logprobs", false);
  if (fields.given("top_logprobs")) {
    body.top_logprobs = static_cast<int>(fields.integer("top_logprobs", 0, kMaxTopLogprobs));
    if (!body.logprobs) fields.refuse("top_logprobs", "logprobs true beside it");
  }
  return body;
}

}  // namespace bathys::eval
