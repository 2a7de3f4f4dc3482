// SPDX-License-Identifier: Apache-2.0
// For compare_json_with_python.py: each line of standard input is one text in hexadecimal digits; the answer is "taken
// " and the value, or "refused " and the cause.
#include "core/json.hpp"

#include <cstdio>
#include <iostream>
#include <string>

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    std::string text;
    for (std::size_t at = 0; at + 1 < line.size(); at += 2) {
      text.push_back(static_cast<char>(std::stoi(line.substr(at, 2), nullptr, 16)));
    }
    bathys::Json value;
    const auto cause = bathys::try_parse_json(text, value);
    std::cout << (cause ? "refused " + *cause : "taken " + value.dump()) << '\n';
  }
}
