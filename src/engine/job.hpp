// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What the engine is asked for and what it answers.  Tokens in, numbers out: text, tasks and files are eval's.
namespace bathys::engine {

// A sequence whose tokens [first_scored, size) are scored given everything before them.  1 <= first_scored < size.
struct ScoredSequence {
  std::vector<std::int32_t> tokens;
  std::int64_t first_scored = 1;
};

// Sequences that belong together (the continuations of one context, the windows of one document).  A common beginning
// is computed once and forked, which changes no number.
struct ScoreJob {
  std::int64_t tag = 0;
  std::vector<ScoredSequence> sequences;
};

struct TokenScore {
  float logprob = 0;    // natural log of the softmax over the whole vocabulary
  bool greedy = false;  // the token is the argmax at its place (ties: the lowest id)
};

struct GenerateJob {
  std::int64_t tag = 0;
  std::vector<std::int32_t> prompt;         // at least one token
  std::int64_t max_new_tokens = 0;          // 0: nothing is drawn
  float temperature = 0;                    // 0: greedy
  double top_p = 1;                         // (0, 1]
  std::uint64_t key = 0;                    // first 64 bits of SHA-256(seed, custom_id)
  std::vector<std::int32_t> repeats = {0};  // repeat numbers to draw, all from one prefill
  int top_logprobs = 0;                     // 0..20 alternatives a token
  std::vector<std::string> stops;           // generation ends where one first completes in the decoded text
};

enum class Finish { eos, stop, length };

struct DrawnToken {
  std::int32_t id = 0;
  float logprob = 0;                                // under the plain softmax (temperature 1, no top_p)
  std::vector<std::pair<std::int32_t, float>> top;  // best first, ties to the lower id
};

// Why something could not be answered; the run goes on.
struct JobFailure {
  std::string code;              // "nonfinite_value", "does_not_fit"
  std::string message;           // e.g. "layer 3, token 17: a sum of expert outputs is not finite"
  std::int64_t cache_bytes = 0;  // of what does not fit: what its longest sequence takes
};

struct Generated {
  std::int32_t repeat = 0;
  std::vector<DrawnToken> tokens;  // without the EOS that ended it
  Finish finish = Finish::length;
  std::optional<JobFailure> failure;  // of this repeat alone; then tokens are not an answer
};

struct JobResult {
  std::int64_t tag = 0;
  // Of the whole job: for scores that of the first sequence that failed, so that it does not depend on what ran when.
  std::optional<JobFailure> failure;
  std::vector<std::vector<TokenScore>> scores;  // ScoreJob: one list per sequence
  std::vector<Generated> generated;             // GenerateJob: one per repeat
  std::int64_t computed_tokens = 0;             // rows that this job put through the backbone
  std::int64_t reused_tokens = 0;               // rows it shared with a sibling
};

}  // namespace bathys::engine
