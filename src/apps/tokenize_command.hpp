// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/output.hpp"
#include "tokenizer/tokenizer.hpp"

#include <string>
#include <string_view>

namespace bathys::apps {

struct TokenizeOptions {
  bool json = false;          // for programs: JSON Lines in and out
  bool decode = false;        // ids to text
  bool plain = false;         // spellings of added tokens are plain text
  bool skip_special = false;  // decoding leaves out special tokens
  int threads = 1;
};

// The tokenizer of a folder of shards, or of a tokenizer.json.  throws Error(bad_input)
tokenizer::Tokenizer open_tokenizer(const std::string& model);

// What `bathys tokenize` does with the whole input, named `input_name` in messages.
//   json           each line is one JSON string, answered by one line with its ids: [90,128803,91]
//   json, decode   each line is a list of ids, answered by one JSON string
//   decode         ids in decimal, apart by white space or commas, brackets ignored; answered by their text
//   else           the input is one text, answered by a table of its pieces (id, text, bytes) and its counts
// Blank lines of JSON Lines are no record.
//   throws Error(bad_requests) naming the line that is no such value; what `out` throws
void run_tokenize(const tokenizer::Tokenizer& tokenizer, const TokenizeOptions& options, std::string_view input,
                  std::string_view input_name, io::Output& out);

}  // namespace bathys::apps
