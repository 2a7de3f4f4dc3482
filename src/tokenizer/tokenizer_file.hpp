// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/string_pool.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// What a tokenizer.json of the family says, features checked, contents not yet related to each other.
struct TokenizerFile {
  struct VocabEntry {
    StringPool::Slice text;
    std::int32_t id = 0;
  };
  struct Merge {
    StringPool::Slice first;
    StringPool::Slice second;
  };
  struct AddedToken {
    std::string content;
    std::int32_t id;
    bool normalized;
    bool special;
  };
  StringPool pool;                // texts of vocab and merges
  std::vector<VocabEntry> vocab;  // in file order, ids not negative, texts not empty
  std::vector<Merge> merges;      // in order of rank
  std::vector<AddedToken> added;
};

inline constexpr std::size_t kMaxFileBytes = std::size_t{1} << 30;  // the released file has 6 MB

// Reads JSON with the vocabulary and the merges streamed past the document tree, so that the 6 MB file takes tens of
// milliseconds.  Both spellings of merges are taken, "a b" (a first "#version" line is skipped) and ["a", "b"].
//   throws Error(bad_input) naming `name` and the place: not strict JSON, a key twice, a feature that is not
//   implemented, more than kMaxFileBytes
TokenizerFile read_tokenizer_file(std::string_view text, std::string_view name);

}  // namespace bathys::tokenizer
