// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "core/json.hpp"
#include "io/lines.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::apps {

// A line of JSON Lines, and what gives an error its place.
struct JsonLine {
  std::string_view file;
  std::int64_t number = 0;  // from 1
  std::size_t bytes = 0;
  Json body;

  [[nodiscard]] std::string name() const { return fmt::format("{}: line {}", file, number); }
  [[noreturn]] void refuse(std::string_view cause) const { fail(ExitCode::bad_requests, "{}: {}", name(), cause); }
};

// Calls `body` with each line of `input` that is not blank.  `file`: its name in messages.
//   throws Error(bad_requests) for a line that is not JSON
template <class Body>
void for_each_json_line(std::string_view input, std::string_view file, Body&& body) {
  io::LineReader lines(input);
  while (const auto line = lines.next()) {
    if (io::is_blank(line->bytes)) continue;
    JsonLine json{file, line->number, line->bytes.size(), Json()};
    if (const auto cause = try_parse_json(line->bytes, json.body)) json.refuse(*cause);
    body(std::move(json));
  }
}

}  // namespace bathys::apps
