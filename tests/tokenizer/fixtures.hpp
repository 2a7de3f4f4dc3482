// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "tokenizer/tokenizer.hpp"
#include "tokenizer/unicode.hpp"

#include <fstream>
#include <iterator>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

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

// Streamed token by token the text is that of decode(), and no part ends within a character.
inline void expect_streams_as_it_decodes(const Tokenizer& tokenizer, const std::vector<TokenId>& ids,
                                         bool skip_special) {
  StreamDecoder stream(tokenizer, skip_special);
  std::string joined;
  for (const TokenId id : ids) {
    const std::string part = stream.push(id);
    ASSERT_TRUE(is_valid_utf8(part));
    joined += part;
  }
  joined += stream.finish();
  ASSERT_EQ(joined, tokenizer.decode(ids, skip_special));
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
