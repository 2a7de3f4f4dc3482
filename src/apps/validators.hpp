// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>

#include <CLI/CLI.hpp>

// What an option's value may be, in words that say what was found and what is wanted.  CLI11's own checks let "1e3" or
// "nan" through as numbers and print bounds of 309 digits.
namespace bathys::apps {

inline constexpr std::int64_t kMaxThreads = 4096;  // of one process

// A whole number in plain digits.
[[nodiscard]] CLI::Validator whole_number(std::int64_t least,
                                          std::int64_t most = std::numeric_limits<std::int64_t>::max());
// A finite number.
[[nodiscard]] CLI::Validator number(double least, double most = std::numeric_limits<double>::max());

}  // namespace bathys::apps
