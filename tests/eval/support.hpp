// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/request_reader.hpp"
#include "eval/task.hpp"
#include "tokenizer/tokenizer.hpp"

#include <string>
#include <string_view>

namespace bathys::eval::test {

// Built once per process.
inline const tokenizer::Tokenizer& nano_tokenizer() {
  static const auto tokenizer = tokenizer::Tokenizer::from_file(BATHYS_NANO_TOKENIZER, 1024);
  return tokenizer;
}

inline TaskContext nano_context() {
  TaskContext context;
  context.tokenizer = &nano_tokenizer();
  return context;
}

inline RequestRules nano_rules() {
  RequestRules rules;
  rules.vocab_size = 1024;
  rules.max_length = 4096;
  rules.seed = 5;
  rules.model_names = {"nano"};
  return rules;
}

inline RequestFile read(std::string_view text) { return read_requests(text, nano_rules()); }

// A line of a request file.
inline std::string line(std::string_view url, std::string_view body, std::string_view id = "a") {
  return std::string(R"({"custom_id":")") + std::string(id) + R"(","url":"bathys:)" + std::string(url) +
         R"(","body":)" + std::string(body) + "}\n";
}

}  // namespace bathys::eval::test
