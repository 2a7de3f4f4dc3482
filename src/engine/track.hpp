// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/job.hpp"
#include "engine/room.hpp"
#include "engine/stop_matcher.hpp"
#include "model/step.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace bathys::engine {

struct JobState;
struct PrefixNode;

// One sequence on its way through the model: a beginning that several share, one scored sequence, or one repeat of a
// generation.
struct Track {
  enum class Kind { prefix, score, generate };

  Kind kind = Kind::score;
  JobState* job = nullptr;     // whose answer it is; of a prefix: whose start set it off, null when that has ended
  PrefixNode* node = nullptr;  // the beginning it forks from; of a prefix: its own
  std::size_t index = 0;       // sequence or repeat of the job
  std::vector<std::int32_t> tokens;  // from position first_token on; a generation appends what it draws
  std::int64_t first_token = 0;      // 0 until it has started
  std::int64_t end = 0;              // rows to run now: positions below end
  std::int64_t first_wanted = 0;     // rows from this position on are wanted; a prefix has it at or beyond its end
  std::int64_t wanted_from = 0;      // where first_wanted began
  std::int64_t full_length = 0;      // positions that its caches will hold at most
  std::int64_t shared = 0;           // rows that a prefix has run for it
  bool alone = false;                // runs all its rows itself
  bool ended = false;
  model::Sequence sequence;
  Room room;  // what it was admitted with
  std::optional<StopMatcher> stops;

  [[nodiscard]] std::int32_t token(std::int64_t position) const {
    return tokens[static_cast<std::size_t>(position - first_token)];
  }
  // Forgets the tokens that its sequence was forked with: many may have come from one long beginning.
  void forget_shared();
  [[nodiscard]] std::int64_t rows_left() const { return end - sequence.length(); }
  // Feeds what it drew; the prompt's last row, from which the first token is drawn, is prefill.
  [[nodiscard]] bool decoding() const {
    return kind == Kind::generate && sequence.length() > wanted_from && rows_left() == 1;
  }
};

// A job between submit and take_finished.
struct JobState {
  std::uint64_t number = 0;                 // in order of submission
  std::variant<ScoreJob, GenerateJob> job;  // without its tokens, which the tracks have
  JobResult result;
  std::vector<std::unique_ptr<Track>> tracks;
  std::size_t unfinished = 0;    // tracks that have not ended
  std::size_t failed_index = 0;  // of the sequence whose failure stands in the result
};

// Cuts a job into tracks.  `tokenizer` may be null where there are no stops.
//   throws Error(internal) on a sequence without a scored token, or an empty prompt
std::unique_ptr<JobState> plan_job(ScoreJob job);
std::unique_ptr<JobState> plan_job(GenerateJob job, const tokenizer::Tokenizer* tokenizer);

}  // namespace bathys::engine
