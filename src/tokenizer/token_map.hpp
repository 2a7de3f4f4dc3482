// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace bathys::tokenizer {

// The map from token ids to classes of tokens that read alike, by which Engram looks up n-grams.
struct CompressedTokenMap {
  std::vector<std::int32_t> class_of;  // [V], classes numbered in order of their first token
  std::int64_t n_classes = 0;
  std::string sha256;  // of class_of as little-endian int32, 64 hex digits
};

// Two tokens share a class when their keys are equal bytes.  The key of a token whose text holds U+FFFD (bytes that are
// no whole characters, or that character itself) is its spelling in tokenizer.json; else its text after NFKD, without
// marks (all of category M), lowercased code point by code point, runs of space, tab, CR and LF made one space,
// White_Space stripped at both ends unless the text is a single space; the unchanged text where nothing is left.
CompressedTokenMap compressed_token_map(const Tokenizer& tokenizer);

}  // namespace bathys::tokenizer
