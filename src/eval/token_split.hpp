// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/job.hpp"
#include "eval/request.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

// From text to scored tokens by the rules of lm-evaluation-harness, so that numbers can be compared
// (docs/file_formats.md).
namespace bathys::eval {

// A context and one continuation of it, as token ids.
struct TokenPair {
  TokenIds context;  // never empty
  TokenIds continuation;
  bool prefixed = false;  // the context was empty: its one token is the prefix token
};

// White space at the context's end moves to the front of the continuation; then both are encoded together and the
// continuation is what stands behind as many tokens as the context alone has: a token that spans the border belongs to
// neither part's own encoding, and the count decides. An empty context (also one of white space only) is
// `prefix_token`, which the continuation's own first token takes the place of when it is the same.
TokenPair split_pair(const tokenizer::Tokenizer& tokenizer, std::string_view context, std::string_view continuation,
                     std::int32_t prefix_token);

// The rule for an empty context, on ids.
TokenPair pair_of(TokenIds context, TokenIds continuation, std::int32_t prefix_token);

// The last max_length + 1 tokens of the pair; positions start again at 0.  The continuation must not be longer than
// max_length.
struct Truncated {
  engine::ScoredSequence sequence;
  std::int64_t dropped = 0;  // tokens left out on the left
};
Truncated truncate_pair(const TokenPair& pair, std::int64_t max_length);

// Windows over a whole text: each token is scored once.  The first window predicts up to max_length tokens from the
// prefix token, each later one the next max_length from the token before them; the last is filled up from the left with
// tokens that were scored already, so that it is full too.  No tokens: no windows.
std::vector<engine::ScoredSequence> rolling_windows(const TokenIds& ids, std::int32_t prefix_token,
                                                    std::int64_t max_length);

// Pieces of a split at runs of white space, an empty one at either end counting: len(re.split(r"\s+", text)) of Python.
std::int64_t count_pieces(std::string_view text);

}  // namespace bathys::eval
