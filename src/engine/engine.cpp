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

  // Sequences and bytes of caches.
  struct Room {
    std::int64_t sequences = 0, bytes = 0;
    friend Room operator+(Room a, const Room& b) { return {a.sequences + b.sequences, a.bytes + b.bytes}; }
    friend Room operator-(Room a, const Room& b) { return {a.sequences - b.sequences, a.bytes - b.bytes}; }
    Room& operator+=(const Room& b) { return *this = *this + b; }
  };
  [[nodiscard]] std::int64_t bytes_of(const Track& track) const;
  [[nodiscard]] static Room committed(const JobState& job);
  [[nodiscard]] bool fits(const Room& room) const;
  bool measure(JobState& job) const;
  void start(JobState& job, std::unique_ptr<Track> track, model::Sequence sequence);
  void admit();
  // The tracks that take part in the next step and the rows of each, decode rows first.
  std::vector<std::pair<Track*, std::int64_t>> choose_rows();
  void run(const std::vector<std::pair<Track*, std::int64_t>>& chosen);
  void take_answer(Track& track, std::int64_t position, const HeadAnswer& answer);
  void end_track(Track& track);
  void fail_track(Track& track, JobFailure failure);
  void end_job(JobState& job);
  void drop_ended();
  void end_misfits();
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
  s.end_misfits();
  const auto chosen = s.choose_rows();
  if (chosen.empty()) {
    require(s.jobs.empty(), ExitCode::internal, "engine: {} jobs wait and no row can run", s.jobs.size());
    return false;
  }
  s.run(chosen);
  s.drop_ended();
  return true;
}

std::int64_t Engine::State::bytes_of(const Track& track) const { return model.caches().bytes_for(track.full_length()); }

// What a started job may come to hold before another of its tracks ends: a prefix always keeps the place of one fork,
// so that no set of held prefixes can block all of them.
Engine::State::Room Engine::State::committed(const JobState& job) {
  if (!job.started) return {};
  if (!job.prefix) return {job.alive, job.alive_bytes};
  return {1 + std::max<std::int64_t>(job.alive, 1), job.prefix_bytes + std::max(job.alive_bytes, job.largest_bytes)};
}

bool Engine::State::fits(const Room& room) const {
  return room.sequences <= options.max_sequences && (options.cache_bytes == 0 || room.bytes <= options.cache_bytes);
}

// Sizes a job that has not started; false when one of its sequences alone is larger than the bound.
bool Engine::State::measure(JobState& job) const {
  for (const auto& track : job.waiting) job.largest_bytes = std::max(job.largest_bytes, bytes_of(*track));
  if (!fits({1, job.largest_bytes})) return false;
  if (job.prefix) {
    job.prefix_bytes = bytes_of(*job.prefix);
    if (!fits({2, job.prefix_bytes + job.largest_bytes})) {  // then each computes the common beginning for itself
      job.prefix.reset();
      for (auto& track : job.waiting) track->shared = 0;
    }
  }
  return true;
}

void Engine::State::start(JobState& job, std::unique_ptr<Track> track, model::Sequence sequence) {
  track->sequence = std::move(sequence);
  ++job.alive;
  job.alive_bytes += bytes_of(*track);
  alive.push_back(std::move(track));
}

// Jobs start in order, and none overtakes one that waits for room.  A job's tracks follow its prefix; the last of them
// takes the prefix's sequence over.
void Engine::State::admit() {
  Room total;
  for (const auto& job : jobs) total += committed(*job);
  for (auto& entry : jobs) {
    JobState& job = *entry;
    if (job.result.failure) continue;
    if (!job.started) {
      if (!measure(job)) {
        job.result.failure = JobFailure{
            "does_not_fit", fmt::format("a sequence takes {} bytes of caches, {} are allowed; raise --memory",
                                        job.largest_bytes, options.cache_bytes)};
        continue;
      }
      const Room first =
          job.prefix ? Room{2, job.prefix_bytes + job.largest_bytes} : Room{1, bytes_of(*job.waiting.front())};
      if (!fits(total + first)) break;
      job.started = true;
      if (job.prefix) {
        total += first;
        auto track = std::make_unique<Track>(std::move(*job.prefix));  // its place in the job is kept
        track->sequence = model.caches().make();
        alive.push_back(std::move(track));
      }
    }
    if (job.prefix && job.prefix->sequence.length() < job.prefix->end) continue;  // still running
    while (!job.waiting.empty()) {
      const bool last = job.waiting.size() == 1;
      const Room before = committed(job);
      const std::int64_t bytes = bytes_of(*job.waiting.front());
      Room after{job.alive + 1, job.alive_bytes + bytes};
      if (job.prefix && !last)
        after = {1 + after.sequences, job.prefix_bytes + std::max(after.bytes, job.largest_bytes)};
      if (!fits(total - before + after)) break;
      total = total - before + after;
      auto track = std::move(job.waiting.front());
      job.waiting.pop_front();
      if (!job.prefix) {
        start(job, std::move(track), model.caches().make());
      } else if (last) {
        start(job, std::move(track), std::move(job.prefix->sequence));
        job.prefix.reset();
      } else {
        start(job, std::move(track), model.fork(job.prefix->sequence));
      }
    }
    if (!job.waiting.empty()) break;
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
    fail_track(*chosen[static_cast<std::size_t>(f.chunk)].first,
               {"nonfinite_value",
                fmt::format("layer {}, token {}: a sum is not finite or out of range", f.layer, f.position)});
  }
  for (std::size_t i = 0; i < answers.size(); ++i) {
    if (asked[i].first->job != nullptr) take_answer(*asked[i].first, asked[i].second, answers[i]);
  }
  for (const auto& [track, rows] : chosen) {
    if (track->job != nullptr && track->rows_left() == 0) end_track(*track);
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

// A track with no rows left: a prefix hands its sequence to its job, the others are done.
void Engine::State::end_track(Track& track) {
  JobState& job = *track.job;
  if (track.kind == Track::Kind::prefix) {
    job.prefix = std::move(track);
    track.job = nullptr;
    return;
  }
  job.result.reused_tokens += track.shared;
  --job.alive;
  job.alive_bytes -= bytes_of(track);
  track.job = nullptr;
  if (--job.unfinished == 0) end_job(job);
}

// Only the sequence is lost.  A repeat fails alone; scores of one request are one answer, so the rest is still run, and
// the failure of the first sequence that has one is told, whatever ran first.  A prefix stands for all.
void Engine::State::fail_track(Track& track, JobFailure failure) {
  JobState& job = *track.job;
  if (track.kind == Track::Kind::generate) {
    job.result.generated[track.index].failure = std::move(failure);
  } else if (track.kind == Track::Kind::prefix) {
    if (std::holds_alternative<GenerateJob>(job.job)) {
      for (Generated& repeat : job.result.generated) repeat.failure = failure;
    } else {
      job.result.failure = std::move(failure);
    }
    track.job = nullptr;
    job.waiting.clear();
    end_job(job);
    return;
  } else if (!job.result.failure || track.index < job.failed_index) {
    job.result.failure = std::move(failure);
    job.failed_index = track.index;
  }
  end_track(track);
}

void Engine::State::end_job(JobState& job) {
  if (job.result.failure) job.result.scores.clear();
  finished.push_back(std::move(job.result));
  jobs.remove_if([&](const auto& j) { return j.get() == &job; });
}

// Lets go of tracks that have ended.
void Engine::State::drop_ended() {
  std::erase_if(alive, [](const auto& t) { return t->job == nullptr; });
}

// Jobs that can never start.
void Engine::State::end_misfits() {
  for (auto it = jobs.begin(); it != jobs.end();) {
    JobState& job = **it;
    ++it;
    if (!job.started && job.result.failure) end_job(job);
  }
}

}  // namespace bathys::engine
