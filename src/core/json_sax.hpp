// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace bathys {

// Base of readers that take a JSON text event by event and refuse what they do not expect.  `Document` is the library's
// type of a whole text, which lends number and string types alone.
template <class Document>
class JsonSax : public nlohmann::json_sax<Document> {
 public:
  using typename nlohmann::json_sax<Document>::binary_t;
  using typename nlohmann::json_sax<Document>::number_float_t;
  using typename nlohmann::json_sax<Document>::number_integer_t;
  using typename nlohmann::json_sax<Document>::number_unsigned_t;
  using typename nlohmann::json_sax<Document>::string_t;

  // Runs over `text`; returns the cause when it is not JSON or was refused.  The one place that calls the library's
  // lexer, to which a NUL byte is the end of the input: what stands behind one would be dropped in silence, as is a
  // byte order mark in front.
  std::optional<std::string> run(std::string_view text) {
    if (text.starts_with("\xef\xbb\xbf")) return "not JSON at byte 1: a byte order mark, expected plain UTF-8";
    if (const std::size_t nul = text.find('\0'); nul != std::string_view::npos) {
      return fmt::format("not JSON at byte {}: a NUL byte, a control character that JSON writes as \\u0000", nul + 1);
    }
    if (Document::sax_parse(text.begin(), text.end(), this)) return std::nullopt;
    return cause_.empty() ? "not JSON" : cause_;
  }

  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& e) override {
    if (cause_.empty()) cause_ = json_error(position, e.what());
    return false;
  }

 protected:
  bool refuse_as(std::string cause) {
    cause_ = std::move(cause);
    return false;
  }

 private:
  std::string cause_;
};

// Base of readers for texts that may have a hundred thousand keys in one object: the ordered document of core/json.hpp
// would take quadratic time.  A reader overrides the events it expects; all others refuse the text.
class StrictSax : public JsonSax<nlohmann::json> {
 public:
  bool null() override { return refuse("null"); }
  bool boolean(bool /*v*/) override { return refuse("a boolean"); }
  bool number_integer(number_integer_t /*v*/) override { return refuse("a negative number"); }
  bool number_unsigned(number_unsigned_t /*v*/) override { return refuse("a number"); }
  bool number_float(number_float_t /*v*/, const string_t& text) override {
    return refuse("the number " + text.substr(0, 40));
  }
  bool string(string_t& /*v*/) override { return refuse("a string"); }
  bool binary(binary_t& /*v*/) override { return refuse("binary data"); }
  bool start_object(std::size_t /*n*/) override { return refuse("an object"); }
  bool start_array(std::size_t /*n*/) override { return refuse("a list"); }
  bool end_object() override { return true; }
  bool end_array() override { return true; }

 protected:
  // Where the reader stands, for messages: "tensor x: shape".
  [[nodiscard]] virtual std::string place() const = 0;
  bool refuse(const std::string& found) { return refuse_as(fmt::format("{} is {}", place(), found)); }
};

}  // namespace bathys
