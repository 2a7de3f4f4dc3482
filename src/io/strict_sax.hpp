// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace bathys::io {

// Base of event readers for JSON texts that may have a hundred thousand keys in one object: the ordered document of
// core/json.hpp would take quadratic time.  A reader overrides the events it expects; all others refuse the text.
class StrictSax : public nlohmann::json_sax<nlohmann::json> {
 public:
  // Runs over `text`; returns the cause when it is not JSON or was refused.
  std::optional<std::string> run(std::string_view text) {
    if (nlohmann::json::sax_parse(text.begin(), text.end(), this)) return std::nullopt;
    return cause_.empty() ? "not JSON" : cause_;
  }

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
  bool parse_error(std::size_t position, const std::string& /*token*/, const nlohmann::detail::exception& e) override {
    if (cause_.empty()) cause_ = json_error(position, e.what());
    return false;
  }

 protected:
  // Where the reader stands, for messages: "tensor x: shape".
  [[nodiscard]] virtual std::string place() const = 0;
  bool refuse(const std::string& found) { return refuse_as(fmt::format("{} is {}", place(), found)); }
  bool refuse_as(std::string cause) {
    cause_ = std::move(cause);
    return false;
  }

 private:
  std::string cause_;
};

}  // namespace bathys::io
