// SPDX-License-Identifier: Apache-2.0
#include "apps/validators.hpp"

#include <charconv>
#include <cmath>
#include <string>
#include <system_error>

#include <fmt/format.h>

namespace bathys::apps {
namespace {

template <class T>
CLI::Validator within(const char* kind, T least, T most, const char* name) {
  return {[=](std::string& text) {
            T value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = error == std::errc() && end == text.data() + text.size() &&
                              std::isfinite(static_cast<double>(value)) && value >= least && value <= most;
            if (good) return std::string();
            return most == std::numeric_limits<T>::max()
                       ? fmt::format("is {}, a {} from {} on is wanted", text, kind, least)
                       : fmt::format("is {}, a {} from {} to {} is wanted", text, kind, least, most);
          },
          name};
}

}  // namespace

CLI::Validator whole_number(std::int64_t least, std::int64_t most) { return within("whole number", least, most, "N"); }
CLI::Validator number(double least, double most) { return within("number", least, most, "NUMBER"); }

}  // namespace bathys::apps
