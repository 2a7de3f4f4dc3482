// SPDX-License-Identifier: Apache-2.0
#include "engine/engine.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "engine/track.hpp"

#include <algorithm>
#include <deque>
#include <list>
#include <utility>

#include <fmt/format.h>

namespace bathys::engine {

using model::HeadAnswer;
using model::HeadQuery;

struct Engine::State {
  model::Model& model;
  const tokenizer::Tokenizer* tokenizer;
  EngineOptions options;
  EngineCounters counters;
  std::list<std::unique_ptr<JobState>> jobs;  // not yet ended, in order of submission
  std::vector<std::unique_ptr<Track>> alive;  // tracks with a sequence, in order of admission
  std::vector<JobResult> finished;

  void admit();
  void start(std::unique_ptr<Track> track);
  // The tracks that take part in the next step and the rows of each, decode rows first.
  std::vector<std::pair<Track*, std::int64_t>> choose_rows();
  void run(const std::vector<std::pair<Track*, std::int64_t>>& chosen);
  void take_answer(Track& track, std::int64_t position, const HeadAnswer& answer);
  void end_track(Track& track);
  void fail_job(JobState& job, JobFailure failure);
  void end_job(JobState& job);
  void drop_ended();
};

Engine::Engine(model::Model& model, const tokenizer::Tokenizer* tokenizer, const EngineOptions& options)
    : state_(std::make_unique<State>(State{model, tokenizer, options, {}, {}, {}, {}})) {
  require(options.row_budget >= 1 && options.row_budget <= model.options().max_rows, ExitCode::usage,
          "--row-budget {}: must be between 1 and {}, the rows that the model's buffers hold", options.row_budget,
          model.options().max_rows);
  require(options.max_sequences >= 2, ExitCode::usage, "at least 2 sequences must be alive at once, {} were asked for",
          options.max_sequences);
}

Engine::~Engine() = default;

void Engine::submit(ScoreJob job) {
  state_->jobs.push_back(plan_job(std::move(job), state_->options.prefix_sharing));
  if (state_->jobs.back()->unfinished == 0) state_->end_job(*state_->jobs.back());
}

void Engine::submit(GenerateJob job) {
  state_->jobs.push_back(plan_job(std::move(job), state_->options.prefix_sharing, state_->tokenizer));
  if (state_->jobs.back()->unfinished == 0) state_->end_job(*state_->jobs.back());
}

std::int64_t Engine::pending() const {
  return static_cast<std::int64_t>(state_->jobs.size() + state_->finished.size());
}

const EngineCounters& Engine::counters() const { return state_->counters; }

std::vector<JobResult> Engine::take_finished() { return std::exchange(state_->finished, {}); }

bool Engine::step() {
  State& s = *state_;
  s.admit();
  const auto chosen = s.choose_rows();
  if (chosen.empty()) {
    require(s.jobs.empty(), ExitCode::internal, "engine: {} jobs wait and no row can run", s.jobs.size());
    return false;
  }
  s.run(chosen);
  s.drop_ended();
  return true;
}

// Jobs start in order; a job's tracks follow its prefix, and the last of them takes the prefix's sequence over.
void Engine::State::admit() {
  for (auto& job : jobs) {
    const auto room = [&] { return static_cast<std::int64_t>(alive.size()) < options.max_sequences; };
    if (job->prefix) {
      Track& prefix = *job->prefix;
      if (prefix.rows_left() > 0) {
        const bool running = std::any_of(alive.begin(), alive.end(), [&](const auto& t) {
          return t->kind == Track::Kind::prefix && t->job == job.get();
        });
        // A prefix needs a second place for its first fork.
        if (!running && static_cast<std::int64_t>(alive.size()) + 1 < options.max_sequences) {
          auto track = std::make_unique<Track>(std::move(prefix));
          prefix.end = track->end;  // still to come: the moved-from track keeps its place in the job
          track->sequence = model.caches().make();
          alive.push_back(std::move(track));
        }
        continue;
      }
      while (!job->waiting.empty() && room()) {
        auto track = std::move(job->waiting.front());
        job->waiting.pop_front();
        if (job->waiting.empty()) {
          track->sequence = std::move(prefix.sequence);
          job->prefix.reset();
          alive.push_back(std::move(track));
          break;
        }
        track->sequence = model.fork(prefix.sequence);
        alive.push_back(std::move(track));
      }
      continue;
    }
    while (!job->waiting.empty() && room()) {
      auto track = std::move(job->waiting.front());
      job->waiting.pop_front();
      track->sequence = model.caches().make();
      alive.push_back(std::move(track));
    }
    if (!room()) break;
  }
}

std::vector<std::pair<Track*, std::int64_t>> Engine::State::choose_rows() {
  std::vector<std::pair<Track*, std::int64_t>> chosen;
  std::int64_t left = options.row_budget;
  for (const bool decode : {true, false}) {
    for (const auto& track : alive) {
      if (left == 0) return chosen;
      if (track->decoding() != decode) continue;
      const std::int64_t rows = std::min(left, track->rows_left());
      if (rows == 0) continue;
      chosen.emplace_back(track.get(), rows);
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
    track->job->result.computed_tokens += rows;
    model::SequenceChunk chunk;
    chunk.sequence = &track->sequence;
    const std::int64_t start = track->sequence.length();
    for (std::int64_t p = start; p < start + rows; ++p) {
      chunk.tokens.push_back(track->tokens[static_cast<std::size_t>(p)]);
      chunk.reach.push_back(std::max<std::int64_t>(0, track->first_wanted - p));
      if (p < track->first_wanted) continue;
      HeadQuery query;
      query.wanted_row = static_cast<std::int64_t>(queries.size());
      if (track->kind == Track::Kind::score) {
        query.target = track->tokens[static_cast<std::size_t>(p + 1)];
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

  for (const model::RowFailure& f : failures) {
    fail_job(*chosen[static_cast<std::size_t>(f.chunk)].first->job,
             {"nonfinite_value",
              fmt::format("layer {}, token {}: a sum is not finite or out of range", f.layer, f.position)});
  }
  for (std::size_t i = 0; i < answers.size(); ++i) take_answer(*asked[i].first, asked[i].second, answers[i]);
  for (const auto& [track, rows] : chosen) {
    if (!track->job->result.failure && track->rows_left() == 0) end_track(*track);
  }
}

void Engine::State::take_answer(Track& track, std::int64_t position, const HeadAnswer& answer) {
  JobState& job = *track.job;
  if (job.result.failure) return;
  if (!answer.finite) {
    fail_job(job, {"nonfinite_value",
                   fmt::format("layer {}, token {}: the logits are not finite", model.config().n_layers, position)});
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

// A track with no rows left: a prefix hands its sequence to its job, the others are done.
void Engine::State::end_track(Track& track) {
  JobState& job = *track.job;
  if (track.kind == Track::Kind::prefix) {
    job.prefix = std::move(track);
    track.job = nullptr;
    return;
  }
  job.result.reused_tokens += track.shared;
  track.job = nullptr;
  if (--job.unfinished == 0) end_job(job);
}

void Engine::State::fail_job(JobState& job, JobFailure failure) {
  if (job.result.failure) return;
  job.result.failure = std::move(failure);
  job.result.scores.clear();
  job.result.generated.clear();
}

void Engine::State::end_job(JobState& job) {
  finished.push_back(std::move(job.result));
  jobs.remove_if([&](const auto& j) { return j.get() == &job; });
}

// Lets go of tracks that have ended and of everything that belongs to a failed job.
void Engine::State::drop_ended() {
  std::erase_if(alive, [](const auto& t) { return t->job == nullptr || t->job->result.failure.has_value(); });
  for (auto it = jobs.begin(); it != jobs.end();) {
    JobState& job = **it;
    ++it;
    if (job.result.failure) end_job(job);
  }
}

}  // namespace bathys::engine
