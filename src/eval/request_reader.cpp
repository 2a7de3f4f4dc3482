// SPDX-License-Identifier: Apache-2.0
#include "eval/request_reader.hpp"

#include "core/error.hpp"
#include "core/shown.hpp"
#include "eval/json_text.hpp"
#include "eval/openai_request.hpp"
#include "eval/request_fields.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"
#include "io/lines.hpp"
#include "parallel/signals.hpp"
#include "tokenizer/prompt.hpp"
#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <iterator>
#include <limits>
#include <unordered_map>
#include <utility>

namespace bathys::eval {
namespace {

constexpr std::size_t kMaxCustomIdBytes = 512;
constexpr double kNoLimit = std::numeric_limits<double>::infinity();

// Members that only shape the prompt of `messages`.
constexpr const char* kMessageOptions[] = {"thinking",    "effort",          "tools",
                                           "tool_choice", "response_format", "drop_thinking"};
// Spellings of one limit; where several are given the first of this list counts.
constexpr const char* kLengthNames[] = {"max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens"};

// Whether the model thinks before it answers.  What cannot be encoded fails as a record, with the encoder's words.
bool thinks(const Messages& messages) {
  try {
    return tokenizer::read_conversation(messages.body).thinking;
  } catch (const tokenizer::PromptError&) {
    return false;
  }
}

Context read_context(RequestFields& fields, const RequestRules& rules) {
  const int n_given = int{fields.given("context")} + int{fields.given("context_ids")} + int{fields.given("messages")};
  if (n_given != 1) {
    throw LineFault{
        n_given == 0 ? "missing_field" : "unknown_field",
        fmt::format("{} holds {} of context, context_ids, messages, expected exactly one", "body", n_given)};
  }
  if (fields.given("context")) return fields.text("context");
  if (fields.given("context_ids")) return fields.ids("context_ids", rules.vocab_size);
  if (!fields.any("messages").is_array()) fields.refuse("messages", "a list of messages");
  Messages messages;
  messages.body["messages"] = fields.any("messages");
  for (const char* option : kMessageOptions) {
    if (fields.given(option)) messages.body[option] = fields.any(option);
  }
  return messages;
}

Loglikelihood read_loglikelihood(RequestFields& fields, const RequestRules& rules) {
  Loglikelihood body;
  body.context = read_context(fields, rules);
  const bool as_text = fields.given("continuations");
  const bool as_ids = fields.given("continuation_ids");
  if (as_text == as_ids) {
    throw LineFault{as_text ? "unknown_field" : "missing_field",
                    fmt::format("body holds {} of continuations, continuation_ids, expected exactly one",
                                as_text ? "both" : "none")};
  }
  const char* const key = as_text ? "continuations" : "continuation_ids";
  std::size_t count = 0;
  if (as_text) {
    auto texts = fields.texts(key);
    count = texts.size();
    body.continuations = std::move(texts);
  } else {
    auto lists = fields.lists_of_ids(key, rules.vocab_size);
    count = lists.size();
    body.continuations = std::move(lists);
  }
  if (count == 0) fields.refuse(key, "at least one continuation");
  body.token_logprobs = fields.flag("token_logprobs", false);
  if (fields.given("gold")) body.gold = fields.integer("gold", 0, static_cast<std::int64_t>(count) - 1);
  return body;
}

Rolling read_rolling(RequestFields& fields, const RequestRules& rules) {
  Rolling body;
  const bool as_text = fields.given("text");
  const bool as_ids = fields.given("ids");
  if (as_text == as_ids) {
    throw LineFault{as_text ? "unknown_field" : "missing_field",
                    fmt::format("body holds {} of text, ids, expected exactly one", as_text ? "both" : "none")};
  }
  if (as_text) {
    body.text = fields.text("text");
  } else {
    body.text = fields.ids("ids", rules.vocab_size);
  }
  body.token_logprobs = fields.flag("token_logprobs", false);
  return body;
}

Generate read_generate(RequestFields& fields, const RequestRules& rules) {
  Generate body;
  body.context = read_context(fields, rules);
  if (fields.given("until")) body.until = fields.text_or_texts("until");
  std::erase(body.until, std::string());
  bool counted = false;
  for (const char* name : kLengthNames) {
    if (!fields.given(name)) continue;
    const std::int64_t value = fields.integer(name, 0, kMaxDrawnTokens);
    if (!counted) body.max_gen_toks = value;
    counted = true;
  }
  if (fields.given("temperature")) body.temperature = fields.number("temperature", 0, true, kNoLimit);
  // do_sample true with temperature 0 stays greedy; absent, the temperature decides.
  if (fields.given("do_sample")) {
    body.sampled_at_zero = fields.flag("do_sample", false) && body.temperature == 0;
    if (!fields.flag("do_sample", false)) body.temperature = 0;
  }
  if (fields.given("top_p")) body.top_p = fields.number("top_p", 0, false, 1);
  if (fields.given("think_end")) {
    body.think_end = fields.text("think_end");
    if (body.think_end->empty()) fields.refuse("think_end", "a string of at least one character");
  } else if (const auto* messages = std::get_if<Messages>(&body.context); messages != nullptr && thinks(*messages)) {
    body.think_end = "</think>";
  }
  if (fields.given("repeats")) body.repeats = static_cast<std::int32_t>(fields.integer("repeats", 1, kMaxRepeats));
  if (fields.given("top_logprobs"))
    body.top_logprobs = static_cast<int>(fields.integer("top_logprobs", 0, kMaxTopLogprobs));
  body.token_ids = fields.flag("token_ids", false);
  if (fields.given("gold")) body.gold = fields.text_or_texts("gold");
  return body;
}

void read_common(RequestFields& fields, const RequestRules& rules, Request& request) {
  request.seed = rules.seed;
  if (fields.given("seed")) request.seed = static_cast<std::uint64_t>(fields.integer("seed", 0, INT64_MAX));
  request.max_length = rules.max_length;
  if (fields.given("max_length")) request.max_length = fields.integer("max_length", 1, rules.max_length);
  if (fields.given("model")) {
    const std::string model = fields.text("model");
    if (std::find(rules.model_names.begin(), rules.model_names.end(), model) == rules.model_names.end()) {
      std::string loaded;
      for (const std::string& name : rules.model_names) loaded += (loaded.empty() ? "" : " or ") + name;
      throw LineFault{"model_mismatch", fmt::format("{} is {}, but the loaded model is {}", fields.full("model"),
                                                    shown(Json(model)), loaded)};
    }
  }
  request.add_bos = fields.flag("add_bos", false);
  if (request.add_bos && fields.given("messages")) {
    fields.refuse("add_bos", "false with messages, whose encoding begins with BOS already");
  }
  if (fields.given("task")) request.task = fields.text("task");
}

// The bodies that the line stands for: several where a completion has several prompts.
std::vector<Generate> read_body(const std::string& url, const Json& json, const RequestRules& rules, Request& request) {
  std::vector<Generate> prompts;
  RequestFields fields(json, "body");
  read_common(fields, rules, request);
  if (url == "bathys:loglikelihood") {
    request.body = read_loglikelihood(fields, rules);
  } else if (url == "bathys:loglikelihood_rolling") {
    request.body = read_rolling(fields, rules);
  } else if (url == "bathys:generate_until") {
    request.body = read_generate(fields, rules);
  } else if (url == kCompletionsUrl) {
    prompts = read_completions(fields, rules, request);
  } else if (url == kChatUrl) {
    prompts = {read_chat_completion(fields, rules, request)};
  } else {
    throw LineFault{"url_mismatch",
                    fmt::format("url is {}, expected bathys:loglikelihood, bathys:loglikelihood_rolling, "
                                "bathys:generate_until, /v1/completions or /v1/chat/completions",
                                shown(Json(url)))};
  }
  fields.finish();
  return prompts;
}

std::vector<Request> read_line(const io::Line& line, const RequestRules& rules) {
  if (!tokenizer::is_valid_utf8(line.bytes)) throw LineFault{"invalid_utf8", "the line is not UTF-8"};
  // meta may hold numbers that no machine type can: it is checked with its numbers put aside, and kept as text.
  const auto meta = raw_member(line.bytes, "meta");
  std::string text;
  if (meta) {
    const auto before = static_cast<std::size_t>(meta->data() - line.bytes.data());
    text.append(line.bytes.substr(0, before))
        .append(neutral_numbers(*meta))
        .append(line.bytes.substr(before + meta->size()));
  }
  Json json;
  if (const auto cause = try_parse_json(meta ? std::string_view(text) : line.bytes, json))
    throw LineFault{"invalid_json_line", *cause};

  Request request;
  request.line = line.number;
  request.sha256 = io::sha256_hex(line.bytes);
  request.meta = meta ? std::string(*meta) : "null";
  RequestFields fields(json, "");
  static_cast<void>(fields.given("meta"));
  request.custom_id = fields.text("custom_id");
  if (request.custom_id.empty() || request.custom_id.size() > kMaxCustomIdBytes)
    fields.refuse("custom_id", "1 to 512 bytes");
  if (fields.given("method") && fields.any("method") != "POST") fields.refuse("method", "\"POST\"");
  std::vector<Generate> prompts = read_body(fields.text("url"), fields.any("body"), rules, request);
  fields.finish();
  if (prompts.empty()) return {std::move(request)};
  std::vector<Request> requests;
  for (Generate& prompt : prompts) {
    requests.push_back(request);
    requests.back().first_repeat = static_cast<std::int32_t>(requests.size() - 1) * prompt.repeats;
    requests.back().body = std::move(prompt);
  }
  return requests;
}

}  // namespace

std::string RequestFault::text() const { return fmt::format("line {}: {}: {}", line, code, words); }

std::string read_request_text(const std::string& path, const Pulse& pulse) {
  return io::read_stream(path, [&] {
    beat(pulse);
    parallel::end_if_stop_requested(path);
  });
}

RequestFile read_requests(std::string_view text, const RequestRules& rules, const Pulse& pulse) {
  RequestFile file;
  std::unordered_map<std::string, std::int64_t> line_of;
  io::LineReader lines(text);
  while (const auto line = lines.next()) {
    beat(pulse);
    if (io::is_blank(line->bytes)) continue;
    try {
      std::vector<Request> requests = read_line(*line, rules);
      const std::string& id = requests.front().custom_id;
      const auto [first, added] = line_of.emplace(id, line->number);
      if (!added) {
        throw LineFault{"duplicate_custom_id",
                        fmt::format("custom_id {} stands in line {} already", json_string(id), first->second)};
      }
      std::move(requests.begin(), requests.end(), std::back_inserter(file.requests));
    } catch (const LineFault& fault) {
      file.faults.push_back({line->number, fault.code, fault.words});
      if (file.faults.size() == kMaxRequestFaults) return file;
    }
  }
  if (file.requests.empty() && file.faults.empty())
    file.faults.push_back({1, "empty_file", "no request stands in the file"});
  return file;
}

std::string oversights(const RequestFile& file) {
  const auto n = std::count_if(file.requests.begin(), file.requests.end(), [](const Request& request) {
    const auto* generate = std::get_if<Generate>(&request.body);
    return generate != nullptr && generate->sampled_at_zero;
  });
  return n == 0 ? "" : fmt::format("{} requests have do_sample true and temperature 0: they are greedy", n);
}

void require_valid(const RequestFile& file, std::string_view name) {
  if (file.faults.empty()) return;
  const std::size_t n = file.faults.size();
  fail(ExitCode::bad_requests, "{}: {}{} invalid {}, first {}; correct the file and run again", name,
       n == kMaxRequestFaults ? "at least " : "", n, n == 1 ? "line" : "lines", file.faults.front().text());
}

}  // namespace bathys::eval
