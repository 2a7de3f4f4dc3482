// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "tokenizer/tokenizer.hpp"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace bathys::tokenizer::test {

inline std::string read_text(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  if (!in) throw std::runtime_error(path + ": cannot be opened");
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::vector<Json> read_json_lines(const std::string& path) {
  std::istringstream in(read_text(path));
  std::vector<Json> out;
  for (std::string line; std::getline(in, line);) out.push_back(parse_json(line, path, ExitCode::bad_input));
  return out;
}

// Built once per process.
inline const Tokenizer& large_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::from_file(BATHYS_LARGE_TOKENIZER, 129280);
  return tokenizer;
}
inline const Tokenizer& nano_tokenizer() {
  static const Tokenizer tokenizer = Tokenizer::from_file(BATHYS_NANO_TOKENIZER, 1024);
  return tokenizer;
}

}  // namespace bathys::tokenizer::test
