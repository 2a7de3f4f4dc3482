// SPDX-License-Identifier: Apache-2.0
#include "engine/track.hpp"

#include "core/error.hpp"

#include <utility>

namespace bathys::engine {
namespace {

std::int64_t size_of(const std::vector<std::int32_t>& v) { return static_cast<std::int64_t>(v.size()); }

Track& add_track(JobState& state, Track::Kind kind, std::size_t index, std::vector<std::int32_t> tokens,
                 std::int64_t end, std::int64_t first_wanted) {
  Track& track = *state.tracks.emplace_back(std::make_unique<Track>());
  track.kind = kind;
  track.job = &state;
  track.index = index;
  track.tokens = std::move(tokens);
  track.end = track.full_length = end;
  track.first_wanted = track.wanted_from = first_wanted;
  ++state.unfinished;
  return track;
}

}  // namespace

void Track::forget_shared() {
  if (sequence.length() == first_token) return;
  tokens = std::vector<std::int32_t>(tokens.begin() + (sequence.length() - first_token), tokens.end());
  first_token = sequence.length();
}

std::unique_ptr<JobState> plan_job(ScoreJob job) {
  auto state = std::make_unique<JobState>();
  state->result.tag = job.tag;
  state->result.scores.resize(job.sequences.size());
  for (std::size_t i = 0; i < job.sequences.size(); ++i) {
    ScoredSequence& s = job.sequences[i];
    const std::int64_t size = size_of(s.tokens);
    require(s.first_scored >= 1 && s.first_scored < size, ExitCode::internal,
            "engine: first_scored {} of a sequence of {} tokens", s.first_scored, size);
    add_track(*state, Track::Kind::score, i, std::move(s.tokens), size - 1,
              s.first_scored - 1);  // the last is scored, not fed
  }
  state->job = ScoreJob{job.tag, {}};
  return state;
}

std::unique_ptr<JobState> plan_job(GenerateJob job, const tokenizer::Tokenizer* tokenizer) {
  auto state = std::make_unique<JobState>();
  const std::int64_t size = size_of(job.prompt);
  require(size >= 1, ExitCode::internal, "engine: a generation needs a prompt of at least one token");
  state->result.tag = job.tag;
  state->result.generated.resize(job.repeats.size());
  for (std::size_t i = 0; i < job.repeats.size(); ++i) {
    state->result.generated[i].repeat = job.repeats[i];
    if (job.max_new_tokens <= 0) continue;
    Track& track = add_track(*state, Track::Kind::generate, i, job.prompt, size, size - 1);
    track.full_length = size + job.max_new_tokens;
    track.stops.emplace(tokenizer, job.stops);
  }
  job.prompt = {};
  state->job = std::move(job);
  return state;
}

}  // namespace bathys::engine
