// SPDX-License-Identifier: Apache-2.0
#include "engine/track.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <limits>
#include <utility>

namespace bathys::engine {
namespace {

std::int64_t size_of(const std::vector<std::int32_t>& v) { return static_cast<std::int64_t>(v.size()); }

// A beginning shorter than this is not worth a fork.
constexpr std::int64_t kMinShared = 2;

void add_prefix(JobState& state, const std::vector<std::int32_t>& tokens, std::int64_t length,
                std::int64_t first_wanted) {
  Track prefix;
  prefix.kind = Track::Kind::prefix;
  prefix.job = &state;
  prefix.tokens.assign(tokens.begin(), tokens.begin() + length);
  prefix.end = length;
  prefix.first_wanted = first_wanted;
  state.prefix = std::move(prefix);
  for (auto& track : state.waiting) track->shared = length;
}

}  // namespace

std::int64_t Track::full_length() const {
  if (kind != Kind::generate) return end;
  const auto& asked = std::get<GenerateJob>(job->job);
  return size_of(asked.prompt) + asked.max_new_tokens;
}

std::unique_ptr<JobState> plan_job(ScoreJob job, bool share) {
  auto state = std::make_unique<JobState>();
  state->result.tag = job.tag;
  state->result.scores.resize(job.sequences.size());
  std::int64_t common = std::numeric_limits<std::int64_t>::max(), first_wanted = common;
  for (std::size_t i = 0; i < job.sequences.size(); ++i) {
    const ScoredSequence& s = job.sequences[i];
    const std::int64_t size = size_of(s.tokens);
    require(s.first_scored >= 1 && s.first_scored < size, ExitCode::internal,
            "engine: first_scored {} of a sequence of {} tokens", s.first_scored, size);
    auto track = std::make_unique<Track>();
    track->kind = Track::Kind::score;
    track->job = state.get();
    track->index = i;
    track->tokens = s.tokens;
    track->end = size - 1;  // the last token is scored, not fed
    track->first_wanted = s.first_scored - 1;
    state->waiting.push_back(std::move(track));
    // Every wanted row stays with its own sequence, so that a prefix asks nothing of the head.
    const auto& first = job.sequences.front().tokens;
    const auto differ =
        std::mismatch(first.begin(), first.end(), s.tokens.begin(), s.tokens.end()).first - first.begin();
    common = std::min({common, static_cast<std::int64_t>(differ), s.first_scored - 1});
    first_wanted = std::min(first_wanted, s.first_scored - 1);
  }
  state->unfinished = state->waiting.size();
  if (share && state->waiting.size() > 1 && common >= kMinShared)
    add_prefix(*state, job.sequences.front().tokens, common, first_wanted);
  state->job = std::move(job);
  return state;
}

std::unique_ptr<JobState> plan_job(GenerateJob job, bool share, const tokenizer::Tokenizer* tokenizer) {
  auto state = std::make_unique<JobState>();
  const std::int64_t size = size_of(job.prompt);
  require(size >= 1, ExitCode::internal, "engine: a generation needs a prompt of at least one token");
  state->result.tag = job.tag;
  state->result.generated.resize(job.repeats.size());
  for (std::size_t i = 0; i < job.repeats.size(); ++i) {
    state->result.generated[i].repeat = job.repeats[i];
    if (job.max_new_tokens <= 0) continue;
    auto track = std::make_unique<Track>();
    track->kind = Track::Kind::generate;
    track->job = state.get();
    track->index = i;
    track->tokens = job.prompt;
    track->end = size;
    track->first_wanted = size - 1;
    track->stops.emplace(tokenizer, job.stops);
    state->waiting.push_back(std::move(track));
  }
  state->unfinished = state->waiting.size();
  if (share && state->waiting.size() > 1 && size - 1 >= kMinShared) add_prefix(*state, job.prompt, size - 1, size - 1);
  state->job = std::move(job);
  return state;
}

}  // namespace bathys::engine
