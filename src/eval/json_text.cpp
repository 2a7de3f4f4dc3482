// SPDX-License-Identifier: Apache-2.0
#include "eval/json_text.hpp"

#include "core/error.hpp"
#include "core/json.hpp"

#include <algorithm>
#include <cmath>

namespace bathys::eval {
namespace {

bool is_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }
bool is_digit(char c) { return c >= '0' && c <= '9'; }

std::size_t skip_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_space(text[at])) ++at;
  return at;
}

// Index behind the string that begins at text[at] == '"', at most text.size().
std::size_t skip_string(std::string_view text, std::size_t at) {
  for (++at; at < text.size() && text[at] != '"'; ++at) {
    if (text[at] == '\\') ++at;
  }
  return std::min(at + 1, text.size());
}

// Index behind the value that begins at text[at].
std::size_t skip_value(std::string_view text, std::size_t at) {
  int depth = 0;
  while (at < text.size()) {
    const char c = text[at];
    if (c == '"') {
      at = skip_string(text, at);
      if (depth == 0) return at;
      continue;
    }
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') {
      if (depth == 0) return at;  // the outer object's end closes a scalar
      if (--depth == 0) return at + 1;
    }
    if (depth == 0 && (c == ',' || is_space(c))) return at;
    ++at;
  }
  return at;
}

bool names(std::string_view quoted, std::string_view key) {
  if (quoted.find('\\') == std::string_view::npos) return quoted.substr(1, quoted.size() - 2) == key;
  Json decoded;
  return !try_parse_json(quoted, decoded) && decoded.is_string() && decoded.get_ref<const std::string&>() == key;
}

// Whether `token` is a number of JSON's grammar: -? (0 | [1-9][0-9]*) (.[0-9]+)? ([eE][+-]?[0-9]+)?
bool is_json_number(std::string_view token) {
  std::size_t at = 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < token.size() && is_digit(token[at])) ++at;
    return at - begin;
  };
  if (at < token.size() && token[at] == '-') ++at;
  const bool zero_first = at < token.size() && token[at] == '0';
  const std::size_t whole = digits();
  if (whole == 0 || (zero_first && whole > 1)) return false;
  if (at < token.size() && token[at] == '.') {
    ++at;
    if (digits() == 0) return false;
  }
  if (at < token.size() && (token[at] == 'e' || token[at] == 'E')) {
    ++at;
    if (at < token.size() && (token[at] == '+' || token[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == token.size();
}

}  // namespace

std::optional<std::string_view> raw_member(std::string_view object, std::string_view key) {
  std::size_t at = skip_spaces(object, 0);
  if (at >= object.size() || object[at] != '{') return std::nullopt;
  ++at;
  while (true) {
    at = skip_spaces(object, at);
    if (at >= object.size() || object[at] != '"') return std::nullopt;
    const std::size_t end = skip_string(object, at);
    const std::string_view quoted = object.substr(at, end - at);
    at = skip_spaces(object, end);
    if (at >= object.size() || object[at] != ':') return std::nullopt;
    const std::size_t begin = skip_spaces(object, at + 1);
    at = skip_value(object, begin);
    if (quoted.size() >= 2 && names(quoted, key)) return object.substr(begin, at - begin);
    at = skip_spaces(object, at);
    if (at >= object.size() || object[at] != ',') return std::nullopt;
    ++at;
  }
}

std::string neutral_numbers(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  std::size_t at = 0;
  while (at < text.size()) {
    const char c = text[at];
    std::size_t end = at + 1;
    if (c == '"') {
      end = skip_string(text, at);
    } else if (c == '-' || is_digit(c)) {
      while (end < text.size() &&
             (is_digit(text[end]) || std::string_view("+-.eE").find(text[end]) != std::string_view::npos))
        ++end;
      if (is_json_number(text.substr(at, end - at))) {
        out += '0';
        at = end;
        continue;
      }
    }
    out += text.substr(at, end - at);
    at = end;
  }
  return out;
}

std::string json_string(std::string_view text) {
  return Json(std::string(text)).dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string json_number(double value) {
  require(std::isfinite(value), ExitCode::internal, "a result is {}, which no result file can hold; please report this",
          value);
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return text;
}

std::string json_list(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) {
    if (text.size() > 1) text += ',';
    text += value;
  }
  return text + "]";
}

}  // namespace bathys::eval
