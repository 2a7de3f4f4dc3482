// SPDX-License-Identifier: Apache-2.0
#include "eval/request_counts.hpp"

#include <variant>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

// Beyond so many different values the rest is one entry: the file may draw them at random.
constexpr std::size_t kMaxValues = 50;

std::string said(const Json& body, std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (body.contains(name)) return body[name].is_string() ? body[name].get<std::string>() : body[name].dump();
  }
  return "default";
}

template <class Key>
Json counts_json(const std::map<Key, std::int64_t>& counts) {
  Json json = Json::object();
  for (const auto& [key, n] : counts) {
    std::string name = fmt::format("{}", key);
    if (json.size() >= kMaxValues) name = "other";
    json[name] = json.value(name, std::int64_t{0}) + n;
  }
  return json;
}

}  // namespace

void RequestCounts::add(const Request& request) {
  if (request.first_repeat > 0) return;  // another prompt of a line that is counted already
  ++lines_;
  ++kinds_[request.kind()];
  add_bos_ += request.add_bos ? 1 : 0;
  const Context* context = nullptr;
  if (const auto* scored = std::get_if<Loglikelihood>(&request.body)) context = &scored->context;
  if (const auto* generate = std::get_if<Generate>(&request.body)) {
    context = &generate->context;
    ++temperatures_[generate->temperature];
    ++top_ps_[generate->top_p];
    if (generate->think_end) ++think_ends_[*generate->think_end];
  }
  const auto* messages = context == nullptr ? nullptr : std::get_if<Messages>(context);
  if (messages == nullptr) return;
  ++chats_[fmt::format("thinking {}, effort {}", said(messages->body, {"thinking"}),
                       said(messages->body, {"effort", "reasoning_effort"}))];
}

Json RequestCounts::to_json() const {
  Json json;
  json["lines"] = lines_;
  json["kinds"] = counts_json(kinds_);
  json["temperatures"] = counts_json(temperatures_);
  json["top_p"] = counts_json(top_ps_);
  json["chats"] = counts_json(chats_);
  json["think_end"] = counts_json(think_ends_);
  json["add_bos"] = add_bos_;
  return json;
}

}  // namespace bathys::eval
