// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/exit_code.hpp"

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json.hpp>

namespace bathys {

using Json = nlohmann::ordered_json;

// What a JSON text may hold beyond the format's own rules.
struct JsonLimits {
  int max_depth = 512;
  bool unique_keys = true;  // false: of a key that stands twice in an object the last value counts, at the first place
};

// Parses one JSON text strictly: UTF-8, no trailing bytes, no byte order mark, no NUL byte, no key twice in one object
// (also when escaped), nesting at most 512 deep.  `what` names the text in the message ("config.json").
//   throws Error(code) naming the byte offset and the cause
Json parse_json(std::string_view text, std::string_view what, ExitCode code);

// As parse_json, but returns the cause instead of throwing; used where the caller has its own message form.
std::optional<std::string> try_parse_json(std::string_view text, Json& out, JsonLimits limits = {});

// The cause line of a parser's exception: "not JSON at byte 7: invalid string: ...; last read: \"...\"" with the end of
// what was read, always valid UTF-8.  `what` is the exception's text.
std::string json_error(std::size_t position, std::string_view what);

// `text` with what is no UTF-8 replaced by U+FFFD.
std::string repair_utf8(std::string_view text);

// The name in `names` nearest to `word` by edit distance, or empty when none is near.
std::string nearest_name(std::string_view word, const std::vector<std::string>& names);

// Reads the members of one JSON object strictly: every key must be asked for, types are checked without conversion (an
// integer is an integer, 1.0 and 1e3 are not), and finish() refuses what nobody asked for.
//   All errors: Error(code) with the path of the key ("config.json: text_config.head_dim is \"512\", expected an
//   integer").
class JsonObject {
 public:
  JsonObject(const Json& object, std::string path, ExitCode code);

  [[nodiscard]] bool has(std::string_view key) const;
  [[nodiscard]] bool is_null(std::string_view key) const;  // present and null
  [[nodiscard]] const std::string& path() const { return path_; }

  // Required members.
  std::int64_t integer(std::string_view key);
  double number(std::string_view key);
  bool boolean(std::string_view key);
  std::string string(std::string_view key);
  std::vector<std::int64_t> integers(std::string_view key);
  std::vector<std::string> strings(std::string_view key);
  JsonObject object(std::string_view key);
  const Json& any(std::string_view key);

  // Optional members: `fallback` where the key is absent (null counts as a wrong type).
  std::int64_t integer_or(std::string_view key, std::int64_t fallback);
  double number_or(std::string_view key, double fallback);
  bool boolean_or(std::string_view key, bool fallback);
  std::string string_or(std::string_view key, std::string fallback);
  std::vector<std::int64_t> integers_or(std::string_view key, std::vector<std::int64_t> fallback);

  // Marks a key as known without reading it.
  void ignore(std::string_view key);

  // Throws on the first key that was neither read nor ignored, naming the nearest known one.
  void finish() const;

  // Throws Error(code): "<path>.<key> is <found>, expected <expected>".
  [[noreturn]] void refuse(std::string_view key, std::string_view expected) const;

 private:
  const Json& member(std::string_view key, std::string_view expected);
  [[nodiscard]] std::string full(std::string_view key) const;

  const Json* object_;
  std::string path_;
  ExitCode code_;
  std::set<std::string, std::less<>> known_;
};

}  // namespace bathys
