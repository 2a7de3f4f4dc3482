// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/job.hpp"
#include "engine/stop_matcher.hpp"
#include "model/step.hpp"

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

namespace bathys::engine {

struct JobState;

// One sequence on its way through the model: the common beginning of a job, one scored sequence, or one repeat of a
// generation.
struct Track {
  enum class Kind { prefix, score, generate };

  Kind kind = Kind::score;
  JobState* job = nullptr;
  std::size_t index = 0;             // sequence or repeat of the job
  std::vector<std::int32_t> tokens;  // from position 0; a generation appends what it draws
  std::int64_t end = 0;              // rows to run now: positions below end
  std::int64_t first_wanted = 0;     // rows from this position on are wanted; a prefix has it at or beyond its end
  std::int64_t shared = 0;           // rows that its job's prefix has run for it
  model::Sequence sequence;
  std::optional<StopMatcher> stops;

  // Positions that its caches will hold at most.
  [[nodiscard]] std::int64_t full_length() const;
  [[nodiscard]] std::int64_t rows_left() const { return end - sequence.length(); }
  [[nodiscard]] bool decoding() const { return kind == Kind::generate && sequence.length() > 0 && rows_left() == 1; }
};

// A job between submit and take_finished.
struct JobState {
  std::variant<ScoreJob, GenerateJob> job;
  JobResult result;
  std::optional<Track> prefix;                 // before the rest can start
  std::deque<std::unique_ptr<Track>> waiting;  // not yet given a sequence
  std::size_t unfinished = 0;                  // tracks that have not ended
  std::size_t failed_index = 0;                // of the sequence whose failure stands in the result
  bool started = false;                        // its prefix or a first track has been given a sequence
  std::int64_t alive = 0;                      // tracks with a sequence, the prefix apart
  std::int64_t alive_bytes = 0;                // their caches at full length
  std::int64_t prefix_bytes = 0;               // likewise of the prefix
  std::int64_t largest_bytes = 0;              // and of the largest track
};

// Cuts a job into tracks: a common beginning (where sharing is on and there is one) and the rest.
std::unique_ptr<JobState> plan_job(ScoreJob job, bool share);
std::unique_ptr<JobState> plan_job(GenerateJob job, bool share, const tokenizer::Tokenizer* tokenizer);

}  // namespace bathys::engine
