// SPDX-License-Identifier: Apache-2.0
// The loop of a run: take requests, step, keep answers, decide; each group for itself, the groups of a replica in step.
#include "core/error.hpp"
#include "core/log.hpp"
#include "eval/eval_run_state.hpp"
#include "eval/json_text.hpp"
#include "eval/run_order.hpp"
#include "parallel/signals.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

namespace bathys::eval {
namespace {

// Between two looks at whether the other replicas have ended.  Short: where the MPI library emulates one-sided calls,
// those of working replicas wait until this rank is inside the library again.
constexpr auto kFirstPause = std::chrono::milliseconds(1);
constexpr auto kLongestPause = std::chrono::milliseconds(4);

// Jobs that the engine gets in a step without needing them yet.
constexpr std::int64_t kPlentyPerStep = 64;
constexpr std::int64_t kSequenceTokens = 64;  // of a sequence beside its own

std::int64_t tokens_held(const PreparedTask& task) {
  std::int64_t n_sequences = 0, tokens = count_tokens(task);
  if (const auto* score = std::get_if<engine::ScoreJob>(&task.job)) n_sequences = std::ssize(score->sequences);
  if (const auto* generate = std::get_if<engine::GenerateJob>(&task.job)) {
    n_sequences = std::ssize(generate->repeats);
    tokens *= n_sequences;
  }
  return tokens + kSequenceTokens * n_sequences;
}

}  // namespace

void EvalRun::State::begin_look_ahead() {
  const auto prepare = [this](std::size_t next) {
    return prepare_task(requests[todo[next].first], subject.tasks, todo[next].second);
  };
  ahead =
      std::make_unique<LookAhead>(prepare, LookAhead::Limits{.threads = options.prepare_threads, .cpus = options.cpus});
}

// The first rank of the group takes the next n requests, its tensor ranks are told.
void EvalRun::State::take(std::int64_t n) {
  std::int64_t first = writes() ? counters->take(n) : 0;
  grid->tensor->broadcast_host(&first, sizeof first, 0);
  next_seen = first + n;
  const std::int64_t last = std::min(next_seen, n_todo());
  for (std::int64_t next = first; next < last; ++next) ahead->ask(static_cast<std::size_t>(next));
}

void EvalRun::State::submit(engine::Engine& engine) {
  const Timer timer;
  auto [next, task] = ahead->take();
  InFlight job;
  job.request = todo[next].first;
  job.repeats = todo[next].second;
  job.task = std::move(task);
  job.tokens = tokens_held(job.task);
  job.submitted_s = clock.seconds();
  progress.prepare_s += timer.seconds();
  const auto tag = static_cast<std::int64_t>(next);
  if (auto* score = std::get_if<engine::ScoreJob>(&job.task.job)) {
    score->tag = tag;
    engine.submit(std::move(*score));
  } else if (auto* generate = std::get_if<engine::GenerateJob>(&job.task.job)) {
    generate->tag = tag;
    engine.submit(std::move(*generate));
  } else {
    keep(job, engine::JobResult{});
    return;
  }
  tokens_in_flight += job.tokens;
  in_flight.emplace(tag, std::move(job));
}

void EvalRun::State::finish_job(const engine::JobResult& result) {
  const auto job = in_flight.find(result.tag);
  keep(job->second, result);
  tokens_in_flight -= job->second.tokens;
  in_flight.erase(job);
}

// While there are plenty, a group's engine holds as many as it may, by number and by tokens: sequences share beginnings
// within what it holds.
// They come to it over the first steps, so that the first need not wait for all.  Where they get few it gets what its
// next steps need, since no other group can take what this one holds; look_ahead_of() bounds what waits before it.
// Nothing here depends on how fast tasks are prepared: the tensor ranks of a group do the same.
void EvalRun::State::take_requests(engine::Engine& engine) {
  const std::int64_t wanted = look_ahead_of(n_todo() - next_seen, takers()) - ahead->waiting();
  if (wanted > 0) take(wanted);
  std::int64_t handled = 0;  // a bound on those that need no engine too: stops are looked at between
  bool took_few = false;
  while (handled < options.max_in_flight && engine.pending() < options.max_in_flight) {
    const std::int64_t left = n_todo() - next_seen;
    const bool plenty = tokens_in_flight < kPlentyOfTokens &&
                        (takers() == 1 || left >= std::int64_t{2} * takers() * options.max_in_flight);
    if (!(plenty && handled < kPlentyPerStep) && !engine.wants_jobs()) return;
    if (ahead->waiting() == 0) {
      if (left <= 0 || took_few) return;
      take(chunk_to_take(left, takers(), options.max_in_flight - std::max(engine.pending(), handled)));
      took_few = !plenty;
      continue;  // others may have been first
    }
    submit(engine);
    ++handled;
  }
}

void EvalRun::State::keep(const InFlight& job, const engine::JobResult& result) {
  if (!writes()) return;
  guarded([&] {
    const double now = clock.seconds();
    const std::string item = fmt::format(
        R"({{"rank":{},"time":{},"submitted_s":{:.6f},"seconds":{:.6f},"batch":{},"computed_tokens":{},"reused_tokens":{}}})",
        world.rank(), json_string(utc_now()), job.submitted_s, now - job.submitted_s, in_flight.size(),
        result.computed_tokens, result.reused_tokens);
    std::int64_t failed = 0;
    for (const Record& record : make_records(requests[job.request], job.task, subject.tasks, job.repeats, result)) {
      const auto before = given_up.find({job.request, record.repeat});
      journal->append(record, item, before == given_up.end() ? std::nullopt : std::optional(before->second));
      failed += record.ok ? 0 : 1;
    }
    const std::int64_t all_failed = counters->add_answers(std::ssize(job.repeats), failed);
    if (failed > 0 && options.max_failed >= 0 && failed_before + all_failed > options.max_failed)
      counters->ask(RunCounters::kTooManyFailed);
  });
}

// What this rank alone knows.
std::int64_t EvalRun::State::reasons_to_stop() const {
  std::int64_t reasons = 0;
  if (parallel::stop_requested()) reasons |= RunCounters::kStopAsked;
  if (write_error) reasons |= RunCounters::kBroken;
  if (speaks()) {  // one clock decides
    if (options.max_seconds > 0 && clock.seconds() + progress.load_s >= options.max_seconds)
      reasons |= RunCounters::kStopAsked;
    if (options.max_failed >= 0 && failed_before > options.max_failed) reasons |= RunCounters::kTooManyFailed;
  }
  return reasons;
}

// The ranks of a replica meet; what other replicas ask for comes in by its first rank, and what this one asks for goes
// out by it.
StepFlags EvalRun::State::decide(std::int64_t pending) {
  enum { kStop, kTooMany, kBroken, kDrop, kPending, kOpen, kCount };
  const std::int64_t known = leads_replica() ? counters->asked() : 0;
  const std::int64_t reasons = known | reasons_to_stop();
  std::array<std::int64_t, kCount> flags{};
  flags[kStop] = (reasons & RunCounters::kStopAsked) != 0 ? 1 : 0;
  flags[kTooMany] = (reasons & RunCounters::kTooManyFailed) != 0 ? 1 : 0;
  flags[kBroken] = (reasons & RunCounters::kBroken) != 0 ? 1 : 0;
  if (leads_replica() && stop_asked_s >= 0 && clock.seconds() - stop_asked_s > options.grace_seconds) flags[kDrop] = 1;
  flags[kPending] = pending > 0 ? 1 : 0;
  flags[kOpen] = next_seen < n_todo() || ahead->waiting() > 0 ? 1 : 0;
  grid->replica->all_reduce_host(flags, parallel::Reduce::max);
  if (leads_replica()) {
    const std::int64_t all = flags[kStop] * RunCounters::kStopAsked | flags[kTooMany] * RunCounters::kTooManyFailed |
                             flags[kBroken] * RunCounters::kBroken;
    if ((all & ~known) != 0) counters->ask(all);
    counters->beat();
  }
  if (flags[kTooMany] != 0) too_many_failed = true;
  if (flags[kStop] != 0 && stop_asked_s < 0) {
    stop_asked_s = clock.seconds();
    log::info("stop", "in_flight={} grace_s={}", in_flight.size(), options.grace_seconds);
  }
  StepFlags out;
  out.stop = flags[kStop] != 0 || too_many_failed;
  out.drop = flags[kDrop] != 0 || too_many_failed;
  out.broken = flags[kBroken] != 0;
  out.busy = flags[kPending] != 0 || (flags[kOpen] != 0 && !out.stop);
  return out;
}

void EvalRun::State::count_engine(const engine::Engine& engine) {
  const engine::EngineCounters& counted = engine.counters();
  progress.prefill_s = counted.prefill_s;
  progress.decode_s = counted.decode_s;
  progress.prefill_rows = counted.prefill_rows;
  progress.decode_rows = counted.decode_rows;
  progress.layers.needed = counted.needed;
  progress.layers.computed = engine.rows_computed();
  progress.total_s = progress.load_s + clock.seconds();
}

// For the report of a run that is killed; and answers are made durable in time also where the next is long in coming.
void EvalRun::State::note_progress() {
  if (!journal) return;
  guarded([&] { journal->sync_if_due(); });
  if (since_progress.seconds() < options.status_seconds) return;
  since_progress.restart();
  guarded([&] { journal->append_progress(progress); });
}

RunStatus EvalRun::State::status_now(const char* state) const {
  const std::int64_t answered = counters ? counters->answers() : 0;
  RunStatus status{state,
                   records->n_wanted(),
                   records->n_wanted() - n_left_at_start + answered,
                   failed_before + (counters ? counters->failures() : 0),
                   clock.seconds(),
                   0,
                   std::nullopt};
  if (answered > 0) {
    status.answers_per_s = static_cast<double>(answered) / status.seconds;
    status.seconds_left = static_cast<double>(status.total - status.done) / status.answers_per_s;
  }
  return status;
}

void EvalRun::State::report_status(const char* state, bool always) {
  if (!speaks() || (!always && since_status.seconds() < options.status_seconds)) return;
  since_status.restart();
  guarded([&] {
    const RunStatus status = status_now(state);
    write_status(*folder, status);
    log::info("progress", "state={} done={} total={} failed={} seconds={:.1f} answers_per_s={:.2f}{}", state,
              status.done, status.total, status.failed, status.seconds, status.answers_per_s,
              status.seconds_left ? fmt::format(" left_s={:.0f}", *status.seconds_left) : std::string());
  });
}

// A start that ends by an error says so where others look, as far as that can still be written.
void EvalRun::State::report_end(const parallel::AgreedError& error) {
  if (!speaks()) return;
  try {
    RunStatus status = status_now(error.code() == ExitCode::stopped ? "cancelled" : "failed");
    status.seconds_left.reset();
    write_status(*folder, status);
  } catch (const std::exception&) {  // the error itself is told by who threw it
  }
}

void EvalRun::State::loop(engine::Engine& engine) {
  begin_look_ahead();
  StepFlags flags = decide(engine.pending());
  while (flags.busy && !flags.broken && !flags.drop) {
    if (flags.stop) {
      ahead->drop();
    } else {
      take_requests(engine);
    }
    engine.step();
    if (watchdog != nullptr) watchdog->progress(fmt::format("after step {}", engine.counters().steps));
    for (const engine::JobResult& result : engine.take_finished()) finish_job(result);
    count_engine(engine);
    note_progress();
    report_status(flags.stop ? "cancelling" : "in_progress", false);
    flags = decide(engine.pending());
  }
  ahead.reset();
}

// Other replicas may have work for long after this one has ended: their steps count as progress, and a rank that waits
// still hears signals and keeps the clock.
void EvalRun::State::wait_for_others() {
  if (grid->layout.replicas == 1) return;  // all have left their loop at the same step
  if (journal) guarded([&] { journal->sync(); });
  counters->end();
  std::int64_t told = 0;
  for (auto pause = kFirstPause; !counters->all_ended(); pause = std::min(2 * pause, kLongestPause)) {
    std::this_thread::sleep_for(pause);
    if (counters->heard() && watchdog != nullptr) watchdog->progress("waiting for other replicas");
    if (const std::int64_t reasons = reasons_to_stop(); (reasons & ~told) != 0) {
      counters->ask(reasons);
      told |= reasons;
    }
    report_status(told != 0 ? "cancelling" : "in_progress", false);
  }
  if ((counters->asked() & RunCounters::kTooManyFailed) != 0) too_many_failed = true;
}

}  // namespace bathys::eval
