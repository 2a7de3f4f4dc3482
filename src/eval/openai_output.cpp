// SPDX-License-Identifier: Apache-2.0
#include "eval/openai_output.hpp"

#include "eval/json_text.hpp"
#include "io/hash.hpp"

#include <algorithm>
#include <ctime>
#include <utility>

#include <fmt/format.h>
#include <time.h>

namespace bathys::eval {
namespace {

constexpr std::size_t kIdDigits = 32;

// Bytes of a token as the interface lists them: numbers, for they need not be UTF-8.
Json bytes_of(std::string_view bytes) {
  Json list = Json::array();
  for (const char byte : bytes) list.push_back(static_cast<int>(static_cast<unsigned char>(byte)));
  return list;
}

std::string text_of(const tokenizer::Tokenizer& tokenizer, std::int32_t id) {
  return tokenizer.decode(std::vector<std::int32_t>{id});
}

Json chat_token(const Json& token, const tokenizer::Tokenizer& tokenizer) {
  const auto id = token["id"].get<std::int32_t>();
  return {
      {"token", text_of(tokenizer, id)}, {"logprob", token["logprob"]}, {"bytes", bytes_of(tokenizer.token_bytes(id))}};
}

Json chat_logprobs(const Json& tokens, const tokenizer::Tokenizer& tokenizer) {
  Json content = Json::array();
  for (const Json& token : tokens) {
    Json entry = chat_token(token, tokenizer);
    entry["top_logprobs"] = Json::array();
    for (const Json& other : token["top"]) entry["top_logprobs"].push_back(chat_token(other, tokenizer));
    content.push_back(std::move(entry));
  }
  return {{"content", std::move(content)}, {"refusal", nullptr}};
}

Json completion_logprobs(const Json& tokens, const tokenizer::Tokenizer& tokenizer) {
  Json texts = Json::array(), logprobs = Json::array(), tops = Json::array(), offsets = Json::array();
  std::size_t offset = 0;
  for (const Json& token : tokens) {
    std::string text = text_of(tokenizer, token["id"].get<std::int32_t>());
    offsets.push_back(offset);
    offset += text.size();
    texts.push_back(std::move(text));
    logprobs.push_back(token["logprob"]);
    Json top = Json::object();
    for (const Json& other : token["top"]) {  // of tokens with the same text, the likeliest
      const std::string name = text_of(tokenizer, other["id"].get<std::int32_t>());
      if (!top.contains(name)) top[name] = other["logprob"];
    }
    tops.push_back(std::move(top));
  }
  return {{"tokens", std::move(texts)},
          {"token_logprobs", std::move(logprobs)},
          {"top_logprobs", std::move(tops)},
          {"text_offset", std::move(offsets)}};
}

Json message_of(const Json& result, const std::string& id, std::int32_t index) {
  Json message = {{"role", "assistant"}};
  const Json& calls = result["tool_calls"];
  const bool says_nothing = result["text"] == "" && !calls.empty();
  message["content"] = says_nothing ? Json(nullptr) : result["text"];
  if (!result["reasoning"].is_null()) message["reasoning_content"] = result["reasoning"];
  int n = 0;
  for (const Json& call : calls) {
    const std::string hash = io::sha256_hex(fmt::format("{} {} {}", id, index, n++)).substr(0, kIdDigits);
    message["tool_calls"].push_back({{"id", "call_" + hash},
                                     {"type", "function"},
                                     {"function", {{"name", call["name"]}, {"arguments", call["arguments"]}}}});
  }
  return message;
}

Json choice_of(const Request& request, const OpenAiAnswer& answer, const std::string& id,
               const tokenizer::Tokenizer& tokenizer) {
  const Json& result = answer.record["result"];
  const bool chat = request.dialect == Dialect::chat;
  Json choice = {{"index", answer.index}};
  if (chat) {
    choice["message"] = message_of(result, id, answer.index);
  } else {
    choice["text"] = result["text"];
  }
  choice["logprobs"] = nullptr;
  if (result.contains("logprobs")) {
    choice["logprobs"] =
        chat ? chat_logprobs(result["logprobs"], tokenizer) : completion_logprobs(result["logprobs"], tokenizer);
  }
  choice["finish_reason"] = result["finish_reason"];
  return choice;
}

// A prompt counts once for all its answers.
Json usage_of(const Request& request, const std::vector<OpenAiAnswer>& answers) {
  const auto repeats = std::get<Generate>(request.body).repeats;
  std::int64_t prompt = 0, completion = 0, reasoning = 0;
  for (const OpenAiAnswer& answer : answers) {
    const Json& usage = answer.record["usage"];
    if (answer.index % repeats == 0) prompt += usage["prompt_tokens"].get<std::int64_t>();
    completion += usage["completion_tokens"].get<std::int64_t>();
    reasoning += usage["reasoning_tokens"].get<std::int64_t>();
  }
  return {{"prompt_tokens", prompt},
          {"completion_tokens", completion},
          {"total_tokens", prompt + completion},
          {"completion_tokens_details", {{"reasoning_tokens", reasoning}}}};
}

// What the service would have answered: the request's fault, or its own.
int status_of(const std::string& code) { return code == "does_not_fit" || code == "nonfinite_value" ? 500 : 400; }

}  // namespace

OpenAiLine openai_line(const Request& request, const std::vector<OpenAiAnswer>& answers, const OpenAiContext& context) {
  const std::string hash = request.sha256.substr(0, kIdDigits);
  const bool chat = request.dialect == Dialect::chat;
  const std::string id = (chat ? "chatcmpl-" : "cmpl-") + hash;
  const auto failed = std::find_if(answers.begin(), answers.end(),
                                   [](const OpenAiAnswer& answer) { return !answer.record["ok"].get<bool>(); });
  Json line = {{"id", "batch_req_" + hash}, {"custom_id", request.custom_id}};
  Json& response = line["response"] = {{"status_code", 200}, {"request_id", "req_" + hash}};
  line["error"] = nullptr;
  if (failed != answers.end()) {
    const Json& error = failed->record["error"];
    const int status = status_of(error["code"].get<std::string>());
    response["status_code"] = status;
    response["body"]["error"] = {{"message", error["message"]},
                                 {"type", status == 400 ? "invalid_request_error" : "server_error"},
                                 {"param", nullptr},
                                 {"code", error["code"]}};
    line["error"] = {{"code", error["code"]}, {"message", error["message"]}};
    return {false, line.dump() + "\n"};
  }
  Json& body = response["body"];
  body["id"] = id;
  body["object"] = chat ? "chat.completion" : "text_completion";
  body["created"] = context.created;
  body["model"] = request.model;
  body["choices"] = Json::array();
  for (const OpenAiAnswer& answer : answers)
    body["choices"].push_back(choice_of(request, answer, id, *context.tokenizer));
  body["usage"] = usage_of(request, answers);
  return {true, line.dump() + "\n"};
}

std::int64_t unix_seconds(const std::string& utc) {
  std::tm time{};
  const char* const end = ::strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%SZ", &time);
  return end == nullptr || *end != '\0' ? 0 : static_cast<std::int64_t>(::timegm(&time));
}

}  // namespace bathys::eval
