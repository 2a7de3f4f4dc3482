// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/python_json.hpp"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>

#include <fmt/format.h>

namespace bathys::tokenizer {
namespace {

constexpr int kMaxArgumentDepth = 127;
// Decimal exponents that Python writes without "e".
constexpr int kLeastPlainExponent = -4;
constexpr int kPlainExponentEnd = 16;

// Shortest digits that read back as the same double, in Python's form.
void append_float(std::string& out, double value) {
  std::array<char, 32> buffer{};
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), std::abs(value), std::chars_format::scientific).ptr;
  const std::string_view text(buffer.data(), static_cast<std::size_t>(end - buffer.data()));  // d[.ddd]e+xx
  const std::size_t e = text.find('e');
  const int exponent = std::atoi(text.data() + e + 1);
  if (std::signbit(value)) out += '-';
  if (exponent < kLeastPlainExponent || exponent >= kPlainExponentEnd) {
    out += text;
    return;
  }
  std::string digits(1, text[0]);
  if (e > 2) digits += text.substr(2, e - 2);
  const auto n = static_cast<int>(digits.size());
  if (exponent < 0) {
    out.append("0.").append(static_cast<std::size_t>(-exponent - 1), '0').append(digits);
  } else if (n <= exponent + 1) {
    out.append(digits).append(static_cast<std::size_t>(exponent + 1 - n), '0').append(".0");
  } else {
    const auto n_whole = static_cast<std::size_t>(exponent + 1);
    out.append(digits, 0, n_whole).append(".").append(digits, n_whole);
  }
}

void append_value(std::string& out, const Json& value);

void append_string(std::string& out, std::string_view text) {
  out += '"';
  append_json_escaped(out, text);
  out += '"';
}

void append_object(std::string& out, const Json& object) {
  out += '{';
  std::string_view between;
  for (const auto& [key, value] : object.items()) {
    out += between;
    append_string(out, key);
    out += ": ";
    append_value(out, value);
    between = ", ";
  }
  out += '}';
}

void append_array(std::string& out, const Json& array) {
  out += '[';
  std::string_view between;
  for (const Json& value : array) {
    out += between;
    append_value(out, value);
    between = ", ";
  }
  out += ']';
}

void append_value(std::string& out, const Json& value) {
  switch (value.type()) {
    case Json::value_t::object:
      return append_object(out, value);
    case Json::value_t::array:
      return append_array(out, value);
    case Json::value_t::string:
      return append_string(out, value.get_ref<const std::string&>());
    case Json::value_t::number_float:
      return append_float(out, value.get<double>());
    case Json::value_t::number_integer:
      // Parsers make a non-negative integer unsigned: a signed zero was -0, which Python's peer in the reference reads
      // as a float.
      out += value.get<std::int64_t>() == 0 ? "-0.0" : fmt::to_string(value.get<std::int64_t>());
      return;
    default:
      out += value.dump();
  }
}

}  // namespace

void append_json_escaped(std::string& out, std::string_view text) {
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\b':
        out += "\\b";
        break;
      case '\f':
        out += "\\f";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          out += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
        } else {
          out += c;
        }
    }
  }
}

std::string python_json(const Json& value) {
  std::string out;
  append_value(out, value);
  return out;
}

std::optional<Json> parse_call_arguments(std::string_view text) {
  Json value;
  const auto cause = try_parse_json(text, value, {.max_depth = kMaxArgumentDepth, .unique_keys = false});
  if (cause || !value.is_object()) return std::nullopt;
  return value;
}

}  // namespace bathys::tokenizer
