// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

// One line per event on stderr, `event=name key=value ...`, with units in the keys (`_s`, `_bytes`, `_gib`).  Only the
// rank that speaks (rank 0, or a failing rank) prints; parallel::Session sets this once at start.
namespace bathys::log {

enum class Level { quiet, warn, info, debug };

// Sets what is printed by this process.  A rank other than 0 is silenced except for `cause`.
void configure(Level level, int rank);

// Prints one line, control characters in it escaped.
void write(Level level, std::string_view line);

// log::info("load", "bytes={} seconds={:.2f}", b, s) prints `event=load bytes=.. seconds=..`.
template <class... Args>
void info(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::info, fmt::format("event={} {}", event, fmt::format(format, std::forward<Args>(args)...)));
}
template <class... Args>
void warn(std::string_view event, fmt::format_string<Args...> format, Args&&... args) {
  write(Level::warn, fmt::format("event={} level=warn {}", event, fmt::format(format, std::forward<Args>(args)...)));
}

// Prints the one cause line of a failing process, whatever the level and rank: `bathys: error: text`, control
// characters escaped, newline at the end, in one write(2).  Never throws.
void cause(std::string_view text) noexcept;

}  // namespace bathys::log
