// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/request.hpp"

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::eval {

// Thrown inside the request reader: what is wrong with one line.
struct LineFault {
  std::string code;
  std::string words;
};

// The members of one object of a request line.  Types are checked without conversion (1.0 and 1e3 are no integers, true
// is no number); every key must be asked for, by a name that outlives this
// object, and finish() refuses the rest.  Faults: missing_field, unknown_field,
// wrong_type, with the key's path.
class RequestFields {
 public:
  // `path` is what the object is called in messages; empty for the line's outermost object.
  RequestFields(const Json& object, std::string path);

  // Whether the key stands there with a value other than null.  Marks it as known.
  bool given(std::string_view key);
  const Json& any(std::string_view key);

  std::string text(std::string_view key);
  bool flag(std::string_view key, bool fallback);
  // lowest <= value <= highest
  std::int64_t integer(std::string_view key, std::int64_t lowest, std::int64_t highest);
  double number(std::string_view key, double lowest, bool lowest_allowed, double highest);
  // One string or a list of strings.
  std::vector<std::string> text_or_texts(std::string_view key);
  std::vector<std::string> texts(std::string_view key);
  TokenIds ids(std::string_view key, std::int64_t vocab_size);
  std::vector<TokenIds> lists_of_ids(std::string_view key, std::int64_t vocab_size);

  void finish() const;
  // Throws wrong_type: "<path> is <value>, expected <expected>".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;
  [[nodiscard]] std::string full(std::string_view key) const;

 private:
  TokenIds ids_of(const Json& value, std::string_view key, std::int64_t vocab_size) const;

  const Json* object_;
  std::string path_;
  void know(std::string_view key);

  std::vector<std::string_view> known_;
};

}  // namespace bathys::eval
