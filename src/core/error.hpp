// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/exit_code.hpp"

#include <stdexcept>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace bathys {

// The one exception of the program: a cause line for a person (thing, found, expected, next step) and the exit code
// that `main` returns for it.  The text is one line; control characters in it are escaped by `main` when printed.
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, const std::string& text) : std::runtime_error(text), code_(code) {}
  [[nodiscard]] ExitCode code() const noexcept { return code_; }

 private:
  ExitCode code_;
};

// Throws Error(code, formatted text).
template <class... Args>
[[noreturn]] void fail(ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  throw Error(code, fmt::format(format, std::forward<Args>(args)...));
}

// Throws Error(code, formatted text) unless `condition` holds.  The text is only built on the failing branch.
// Stays on in release builds.
template <class... Args>
void require(bool condition, ExitCode code, fmt::format_string<Args...> format, Args&&... args) {
  if (!condition) [[unlikely]] {
    fail(code, format, std::forward<Args>(args)...);
  }
}

}  // namespace bathys
