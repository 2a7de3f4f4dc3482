// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <string>

namespace bathys::convert {

// The text of a tokenizer.json for a model that has none: ids 0, 1, 2 are the family's special tokens, 3 .. 258 the
// bytes, 259 is "th", and all others, up to vocab_size, are added tokens <|synthetic_N|>.  A tokenizer must merge
// something; but for "th", text is one token a byte.  For a model with Engram the tokens fall into exactly
// engram_compressed_vocab_size classes: where tokens must share one, they are spelled <|synthetic_N|>, <|Synthetic_N|>,
// <|sYnthetic_N|> ...
//   throws Error(usage) when no such tokenizer exists: a vocabulary of less than 260 ids, or a number of classes that
//   is nearly all or very few of them
std::string synthetic_tokenizer_json(const config::ModelConfig& config);

}  // namespace bathys::convert
