// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "core/timer.hpp"
#include "engine/engine_state.hpp"

#include <algorithm>
#include <list>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace bathys::engine {

using model::HeadAnswer;
using model::HeadQuery;

namespace {

// Work that is known beyond the step that runs: enough for the next one, and no more, since what one group holds no
// other group can take.
constexpr std::int64_t kStepsAhead = 2;

}  // namespace

Engine::Engine(model::Model& model, const tokenizer::Tokenizer* tokenizer, const EngineOptions& options)
    : state_(std::make_unique<State>(model, tokenizer, options)) {
  require(options.row_budget >= 1 && options.row_budget <= model.options().max_rows, ExitCode::usage,
          "--row-budget {}: must be between 1 and {}, the rows that the model's buffers hold", options.row_budget,
          model.options().max_rows);
  require(options.max_sequences >= 1, ExitCode::usage, "at least 1 sequence must be alive at once, {} were asked for",
          options.max_sequences);
  model.caches().limit(options.cache_bytes);
}

Engine::~Engine() = default;

void Engine::submit(ScoreJob job) { state_->take(plan_job(std::move(job))); }
void Engine::submit(GenerateJob job) { state_->take(plan_job(std::move(job), state_->tokenizer)); }

std::int64_t Engine::pending() const {
  return static_cast<std::int64_t>(state_->jobs.size() + state_->finished.size());
}

const EngineCounters& Engine::counters() const { return state_->counters; }

const std::vector<model::LayerCounters>& Engine::rows_computed() const { return state_->model.counters(); }

bool Engine::wants_jobs() const {
  const State& s = *state_;
  std::int64_t rows = 0, tracks = std::ssize(s.alive);
  for (const Track* track : s.alive) rows += track->rows_left();
  for (const Track* track : s.waiting) {
    rows += track->rows_left();
    ++tracks;
    if (rows >= kStepsAhead * s.options.row_budget || tracks >= kStepsAhead * s.options.max_sequences) return false;
  }
  return rows < kStepsAhead * s.options.row_budget && tracks < kStepsAhead * s.options.max_sequences;
}

std::vector<JobResult> Engine::take_finished() { return std::exchange(state_->finished, {}); }

bool Engine::step() {
  State& s = *state_;
  s.admit();
  const auto chosen = s.choose_rows();
  if (chosen.empty()) {
    require(s.jobs.empty(), ExitCode::internal, "engine: {} jobs wait and no row can run", s.jobs.size());
    s.model.run({});  // other groups of the replica may have rows
  } else {
    s.run(chosen);
  }
  s.ended_jobs.clear();  // also those that ended before they had a row
  s.ended_nodes.clear();
  return !chosen.empty();
}

void Engine::State::take(std::unique_ptr<JobState> entry) {
  JobState& job = *jobs.emplace_back(std::move(entry));
  job.number = ++n_submitted;
  std::int64_t longest = 0;
  for (const auto& track : job.tracks) longest = std::max(longest, track->full_length);
  const Room room = room_of(longest, tree.root());
  if (!fits(room)) {
    const std::int64_t bytes = model.caches().bytes_of(room);
    const std::string words =
        fmt::format("a sequence takes {} bytes of caches, {} are allowed; raise --memory", bytes, options.cache_bytes);
    job.result.failure = JobFailure{"does_not_fit", words, bytes};
    job.unfinished = 0;
  }
  if (job.unfinished == 0) {
    end_job(job);
    return;
  }
  for (const auto& track : job.tracks) {
    track->alone = !options.prefix_sharing;
    tree.insert(*track);
    waiting.push_back(track.get());
  }
}

std::vector<std::pair<Track*, std::int64_t>> Engine::State::choose_rows() {
  std::vector<std::pair<Track*, std::int64_t>> chosen;
  std::int64_t left = options.row_budget;
  for (const bool decode : {true, false}) {
    for (Track* const track : alive) {
      if (left == 0) return chosen;
      if (track->decoding() != decode) continue;
      const std::int64_t rows = std::min(left, track->rows_left());
      if (rows == 0) continue;
      chosen.emplace_back(track, rows);
      left -= rows;
    }
  }
  return chosen;
}

void Engine::State::run(const std::vector<std::pair<Track*, std::int64_t>>& chosen) {
  const Timer timer;
  model::Step step;
  std::vector<HeadQuery> queries;
  std::vector<std::pair<Track*, std::int64_t>> asked;  // track and position of each query
  bool prefill = false;
  for (const auto& [track, rows] : chosen) {
    prefill = prefill || !track->decoding();
    (track->decoding() ? counters.decode_rows : counters.prefill_rows) += rows;
    if (track->job != nullptr) track->job->result.computed_tokens += rows;
    model::SequenceChunk chunk;
    chunk.sequence = &track->sequence;
    const std::int64_t start = track->sequence.length();
    for (std::int64_t p = start; p < start + rows; ++p) {
      chunk.tokens.push_back(track->token(p));
      chunk.reach.push_back(std::max<std::int64_t>(0, track->first_wanted - p));
      if (p < track->first_wanted) continue;
      HeadQuery query;
      query.wanted_row = static_cast<std::int64_t>(queries.size());
      if (track->kind == Track::Kind::score) {
        query.target = track->token(p + 1);
      } else {
        const auto& job = std::get<GenerateJob>(track->job->job);
        query.key = job.key;
        query.position = p + 1;
        query.repeat = job.repeats[track->index];
        query.temperature = job.temperature;
        query.top_p = job.top_p;
        query.top_logprobs = job.top_logprobs;
      }
      queries.push_back(query);
      asked.emplace_back(track, p);
    }
    step.chunks.push_back(std::move(chunk));
  }
  const std::vector<model::RowFailure> failures = model.run(step);
  const std::vector<HeadAnswer> answers = model.head(queries);
  ++counters.steps;
  (prefill ? counters.prefill_s : counters.decode_s) += timer.seconds();

  // Of a sequence's rows and logits that are not finite the first is told, however they were cut into steps.
  std::unordered_map<const Track*, const model::RowFailure*> failed;
  for (const model::RowFailure& f : failures) failed[chosen[static_cast<std::size_t>(f.chunk)].first] = &f;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& [track, position] = asked[i];
    const auto bad = failed.find(track);
    if (!track->ended && (bad == failed.end() || position < bad->second->position))
      take_answer(*track, position, answers[i]);
  }
  for (const model::RowFailure& f : failures) {
    Track& track = *chosen[static_cast<std::size_t>(f.chunk)].first;
    if (track.ended) continue;
    fail_track(track, {"nonfinite_value",
                       fmt::format("layer {}, token {}: a sum is not finite or out of range", f.layer, f.position)});
  }
  for (const auto& [track, rows] : chosen) {
    if (!track->ended && track->rows_left() == 0) end_track(*track);
  }
}

void Engine::State::take_answer(Track& track, std::int64_t position, const HeadAnswer& answer) {
  JobState& job = *track.job;
  if (!answer.finite) {
    fail_track(track, {"nonfinite_value", fmt::format("layer {}, token {}: the logits are not finite",
                                                      model.config().n_layers, position)});
    return;
  }
  if (track.kind == Track::Kind::score) {
    job.result.scores[track.index].push_back({answer.logprob, answer.greedy});
    ++counters.scored_tokens;
    return;
  }
  const auto& asked = std::get<GenerateJob>(job.job);
  Generated& out = job.result.generated[track.index];
  ++counters.generated_tokens;
  if (answer.token == model.config().eos_token_id) {
    out.finish = Finish::eos;
    return;
  }
  const auto token = static_cast<std::int32_t>(answer.token);
  out.tokens.push_back({token, answer.logprob, answer.top});
  if (track.stops->push(token)) {
    out.finish = Finish::stop;
  } else if (static_cast<std::int64_t>(out.tokens.size()) >= asked.max_new_tokens) {
    out.finish = Finish::length;
  } else {
    track.tokens.push_back(token);
    track.first_wanted = track.end;
    ++track.end;
  }
}

// A track with no rows left: a beginning is ready to be forked, the others are done.
void Engine::State::end_track(Track& track) {
  std::erase(alive, &track);
  if (track.kind == Track::Kind::prefix) {
    track.job = nullptr;
    track.node->state = PrefixNode::State::ready;
    if (track.node->idle() && !track.node->many_jobs) release(*track.node);
    return;
  }
  for (std::size_t l = 0; l < counters.needed.size(); ++l) {
    const std::int64_t rows = track.sequence.length();
    const model::LayerCounters needed = model::rows_needed(model.config(), static_cast<int>(l), rows,
                                                           std::max<std::int64_t>(0, rows - track.wanted_from));
    counters.needed[l].source_rows += needed.source_rows;
    counters.needed[l].window_rows += needed.window_rows;
    counters.needed[l].full_rows += needed.full_rows;
  }
  track.ended = true;
  track.sequence = {};
  vacate(track.room);
  leave(*track.node);
  JobState& job = *track.job;
  job.result.reused_tokens += track.shared;
  if (--job.unfinished == 0) end_job(job);
}

// Only the sequence is lost.  A repeat fails alone; scores of one request are one answer, so the rest is still run, and
// the failure of the first sequence that has one is told, whatever ran first.  Where a beginning fails, those who wait
// for it find out for themselves: one of them alone might not need the row that failed.
void Engine::State::fail_track(Track& track, JobFailure failure) {
  if (track.kind == Track::Kind::prefix) {
    PrefixNode& parent = *track.node->parent;
    std::erase(alive, &track);
    track.ended = true;
    vacate(track.room);
    ended_nodes.push_back(tree.dissolve(*track.node));
    leave(parent);
    return;
  }
  JobState& job = *track.job;
  if (track.kind == Track::Kind::generate) {
    job.result.generated[track.index].failure = std::move(failure);
  } else if (!job.result.failure || track.index < job.failed_index) {
    job.result.failure = std::move(failure);
    job.failed_index = track.index;
  }
  end_track(track);
}

void Engine::State::end_job(JobState& job) {
  if (job.result.failure) job.result.scores.clear();
  for (Track* const track : alive) {
    if (track->job == &job) track->job = nullptr;  // a beginning that it had set off
  }
  finished.push_back(std::move(job.result));
  const auto place = std::find_if(jobs.begin(), jobs.end(), [&](const auto& j) { return j.get() == &job; });
  ended_jobs.push_back(std::move(*place));
  jobs.erase(place);
}

}  // namespace bathys::engine
