// SPDX-License-Identifier: Apache-2.0
#include "eval/request_fields.hpp"

#include "core/shown.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

constexpr std::size_t kShownBytes = 60;

// The integer that `value` is, when it is one and fits; 1.0 and true are none.
bool as_integer(const Json& value, std::int64_t& out) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) return false;
  out = value.get<std::int64_t>();
  return true;
}

}  // namespace

RequestFields::RequestFields(const Json& object, std::string path) : object_(&object), path_(std::move(path)) {
  if (!object.is_object()) {
    throw LineFault{"wrong_type",
                    fmt::format("{} is {}, expected an object", path_.empty() ? "the line" : path_, shown(object))};
  }
}

std::string RequestFields::full(std::string_view key) const {
  return path_.empty() ? std::string(key) : fmt::format("{}.{}", path_, key);
}

void RequestFields::know(std::string_view key) {
  if (std::find(known_.begin(), known_.end(), key) == known_.end()) known_.push_back(key);
}

bool RequestFields::given(std::string_view key) {
  know(key);
  const auto found = object_->find(std::string(key));
  return found != object_->end() && !found->is_null();
}

const Json& RequestFields::any(std::string_view key) {
  know(key);
  const auto found = object_->find(std::string(key));
  if (found == object_->end()) throw LineFault{"missing_field", fmt::format("{} is missing", full(key))};
  return *found;
}

void RequestFields::refuse(std::string_view key, std::string_view expected) const {
  throw LineFault{"wrong_type",
                  fmt::format("{} is {}, expected {}", full(key), shown(object_->at(std::string(key))), expected)};
}

std::string RequestFields::text(std::string_view key) {
  const Json& value = any(key);
  if (!value.is_string()) refuse(key, "a string");
  return value.get<std::string>();
}

bool RequestFields::flag(std::string_view key, bool fallback) {
  if (!given(key)) return fallback;
  const Json& value = any(key);
  if (!value.is_boolean()) refuse(key, "true or false");
  return value.get<bool>();
}

std::int64_t RequestFields::integer(std::string_view key, std::int64_t lowest, std::int64_t highest) {
  std::int64_t value = 0;
  if (!as_integer(any(key), value) || value < lowest || value > highest) {
    refuse(key, fmt::format("an integer from {} to {}", lowest, highest));
  }
  return value;
}

double RequestFields::number(std::string_view key, double lowest, bool lowest_allowed, double highest) {
  const Json& json = any(key);
  const double value = json.is_number() ? json.get<double>() : lowest - 1;
  if (value < lowest || (value == lowest && !lowest_allowed) || value > highest) {
    refuse(key, fmt::format("a number {} {}{}", lowest_allowed ? "of at least" : "above", lowest,
                            highest < 1e300 ? fmt::format(" and at most {}", highest) : std::string()));
  }
  return value;
}

std::vector<std::string> RequestFields::texts(std::string_view key) {
  const Json& value = any(key);
  if (!value.is_array()) refuse(key, "a list of strings");
  std::vector<std::string> out;
  out.reserve(value.size());
  for (const Json& element : value) {
    if (!element.is_string()) refuse(key, "a list of strings");
    out.push_back(element.get<std::string>());
  }
  return out;
}

std::vector<std::string> RequestFields::text_or_texts(std::string_view key) {
  const Json& value = any(key);
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) refuse(key, "a string or a list of strings");
  return texts(key);
}

TokenIds RequestFields::ids_of(const Json& value, std::string_view key, std::int64_t vocab_size) const {
  const auto expected = [&] { return fmt::format("token ids, integers from 0 to {}", vocab_size - 1); };
  if (!value.is_array()) refuse(key, expected());
  TokenIds out;
  out.reserve(value.size());
  for (const Json& element : value) {
    std::int64_t id = -1;
    if (!as_integer(element, id) || id < 0 || id >= vocab_size) {
      throw LineFault{"wrong_type", fmt::format("{} holds {}, expected {}", full(key), shown(element), expected())};
    }
    out.push_back(static_cast<std::int32_t>(id));
  }
  return out;
}

TokenIds RequestFields::ids(std::string_view key, std::int64_t vocab_size) { return ids_of(any(key), key, vocab_size); }

std::vector<TokenIds> RequestFields::lists_of_ids(std::string_view key, std::int64_t vocab_size) {
  const Json& value = any(key);
  if (!value.is_array()) refuse(key, "a list of lists of token ids");
  std::vector<TokenIds> out;
  out.reserve(value.size());
  for (const Json& element : value) out.push_back(ids_of(element, key, vocab_size));
  return out;
}

void RequestFields::finish() const {
  for (const auto& [key, value] : object_->items()) {
    if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
    const std::string near = nearest_name(key, {known_.begin(), known_.end()});
    throw LineFault{"unknown_field",
                    fmt::format("{} is unknown{}", full(printable(key, kShownBytes)),
                                near.empty() ? std::string() : fmt::format("; did you mean {}?", near))};
  }
}

}  // namespace bathys::eval
