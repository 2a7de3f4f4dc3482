// SPDX-License-Identifier: Apache-2.0
#include "eval/eval_run.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "eval/journal.hpp"
#include "eval/json_text.hpp"
#include "eval/request_reader.hpp"
#include "eval/result_files.hpp"
#include "eval/run_order.hpp"
#include "eval/share.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"
#include "parallel/agree.hpp"
#include "parallel/signals.hpp"

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <system_error>
#include <unordered_map>
#include <utility>

namespace bathys::eval {
namespace {

constexpr const char* kOutputNames[] = {"results.jsonl", "results.partial.jsonl", "failed.jsonl", "items.jsonl",
                                        "summary.json",  "status.json",           "manifest.json"};

// The request file must not be one that the run replaces.
void refuse_output_as_input(const EvalOptions& options) {
  std::error_code none;
  for (const char* name : kOutputNames) {
    require(!std::filesystem::equivalent(options.requests, options.out + "/" + name, none), ExitCode::bad_requests,
            "{}: output_is_input: the run would replace its own request file; copy it elsewhere", options.requests);
  }
}

// Rank 0's text on every rank, with rank 0's error on every rank.
std::string read_once(parallel::Collectives& world, const EvalOptions& options) {
  std::string text = parallel::agree(world, [&] {
    if (world.rank() != 0) return std::string();
    refuse_output_as_input(options);
    return io::read_stream(options.requests);
  });
  return world.broadcast_host(text, 0);
}

// What is decided together at the edge of a step: the largest value over the ranks of each flag.
struct StepFlags {
  bool stop = false;    // no new jobs
  bool drop = false;    // what is in flight is dropped too
  bool broken = false;  // rank 0 could not write
};

}  // namespace

// A job that the engine holds, or an answer that needs none.
struct InFlight {
  std::size_t request = 0;
  std::vector<std::int32_t> repeats;
  PreparedTask task;
  double submitted_s = 0;
};

struct EvalRun::State {
  State(parallel::Collectives& ranks, EvalOptions run_options, EvalSubject run_subject)
      : world(ranks), options(std::move(run_options)), subject(std::move(run_subject)) {}

  parallel::Collectives& world;
  EvalOptions options;
  EvalSubject subject;
  std::vector<Request> requests;
  std::vector<std::pair<std::size_t, std::vector<std::int32_t>>>
      todo;  // request, repeats without a record; the same on all ranks
  RunIdentity identity;

  // Rank 0 alone.
  std::unique_ptr<RunFolder> folder;
  std::unique_ptr<RecordTable> records;
  std::unique_ptr<JournalWriter> journal;
  StartHeader header;
  int journal_file = -1;
  std::exception_ptr write_error;

  // Of this start.
  Timer clock;
  Timer since_status;
  Progress progress;
  std::vector<Progress> ranks_progress;
  std::unordered_map<std::int64_t, InFlight> in_flight;
  bool worked = false;
  bool too_many_failed = false;
  double stop_asked_s = -1;
  std::int64_t answered = 0;

  [[nodiscard]] bool speaks() const { return world.rank() == 0; }

  void read_requests_and_check(const std::string& text);
  void open_folder();
  void share_todo();

  void begin_journal();
  void submit(engine::Engine& engine, std::size_t next);
  void keep(const InFlight& job, const engine::JobResult& result);
  StepFlags decide();
  void count_engine(const engine::EngineCounters& counters);
  void report_status(const char* state, bool always);
  void loop(engine::Engine& engine, parallel::Watchdog* watchdog);

  // Rank 0's writes between two gates: the first failure is kept until the ranks meet.
  template <class Write>
  void guarded(Write&& write) {
    if (!speaks() || write_error) return;
    const Timer timer;
    try {
      write();
    } catch (...) {
      write_error = std::current_exception();
    }
    progress.write_s += timer.seconds();
  }

  ExitCode finish_on_rank_0(std::string& table);
};

void EvalRun::State::read_requests_and_check(const std::string& text) {
  const RequestRules rules = rules_of(options, subject);
  RequestFile file = read_requests(text, rules);
  if (speaks()) {
    for (const RequestFault& fault : file.faults) log::write(log::Level::warn, fault.text());
  }
  parallel::agree(world, [&] { require_valid(file, options.requests); });
  requests = keep_share(std::move(file.requests), options.share);

  identity = subject.identity;
  identity.emplace_back("requests_sha256", io::sha256_hex(text));
  identity.emplace_back(kShareKey, to_string(options.share));
  identity.emplace_back("seed", std::to_string(options.seed));
  identity.emplace_back("max_length", std::to_string(rules.max_length));
  identity.emplace_back("prefix_token", std::to_string(subject.tasks.prefix_token));
}

void EvalRun::State::open_folder() {
  folder = std::make_unique<RunFolder>(options.out, identity);
  take_journals(*folder, identity, options.take_from);
  records = std::make_unique<RecordTable>(requests);
  records->read(folder->path());
  header = {records->last_start() + 1, utc_now(), world.size(), options.layout, options.memory_gib};
  if (records->damaged_lines() > 0) {
    log::warn("journal", "damaged_lines={} (left by a kill or a power loss; what they held is done again)",
              records->damaged_lines());
  }
  if (options.retry_failed) {
    records->forget_failed();
  } else {
    records->forget_misfits(header);
  }
}

void EvalRun::State::share_todo() {
  std::string flags;  // one byte for each answer wanted
  if (speaks()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      for (std::int32_t repeat = 0; repeat < requests[i].n_repeats(); ++repeat)
        flags += records->at(i, repeat).present() ? '1' : '0';
    }
  }
  flags = world.broadcast_host(flags, 0);
  std::size_t at = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t> repeats;
    for (std::int32_t repeat = 0; repeat < requests[i].n_repeats(); ++repeat) {
      if (flags[at++] == '0') repeats.push_back(repeat);
    }
    if (!repeats.empty()) todo.emplace_back(i, std::move(repeats));
  }
  sort_for_running(requests, todo);
}

void EvalRun::State::begin_journal() {
  // From here on the result files of an earlier start may be out of date; summary.json, written last, says that they
  // are whole.
  std::error_code none;
  std::filesystem::remove(folder->file("summary.json"), none);
  journal = std::make_unique<JournalWriter>(folder->path(), header, world.rank());
  journal_file = records->add_file(journal->path());
  log::info("run", "requests={} answers={} on_record={} start={}", requests.size(), records->n_wanted(),
            records->n_present(), header.number);
}

void EvalRun::State::submit(engine::Engine& engine, std::size_t next) {
  const Timer timer;
  InFlight job;
  job.request = todo[next].first;
  job.repeats = todo[next].second;
  job.task = prepare_task(requests[job.request], subject.tasks, job.repeats);
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
  in_flight.emplace(tag, std::move(job));
}

void EvalRun::State::keep(const InFlight& job, const engine::JobResult& result) {
  answered += std::ssize(job.repeats);
  guarded([&] {
    const double now = clock.seconds();
    const std::string item = fmt::format(
        R"({{"rank":{},"time":{},"submitted_s":{:.6f},"seconds":{:.6f},"batch":{},"computed_tokens":{},"reused_tokens":{}}})",
        world.rank(), json_string(utc_now()), job.submitted_s, now - job.submitted_s, in_flight.size(),
        result.computed_tokens, result.reused_tokens);
    for (const Record& record : make_records(requests[job.request], job.task, subject.tasks, job.repeats, result)) {
      records->put(job.request, record.repeat, journal->append(record, item, journal_file));
    }
  });
}

StepFlags EvalRun::State::decide() {
  enum { kStop, kDrop, kBroken, kFailed, kCount };
  std::array<std::int64_t, kCount> flags{};
  flags[kStop] = parallel::stop_requested() ? 1 : 0;
  if (speaks()) {  // one clock decides
    const double now = clock.seconds() + progress.load_s;
    const bool failed = options.max_failed >= 0 && records->n_failed() > options.max_failed;
    if (options.max_seconds > 0 && now >= options.max_seconds) flags[kStop] = 1;
    if (stop_asked_s >= 0 && clock.seconds() - stop_asked_s > options.grace_seconds) flags[kDrop] = 1;
    flags[kBroken] = write_error ? 1 : 0;
    flags[kFailed] = failed ? 1 : 0;
  }
  world.all_reduce_host(flags, parallel::Reduce::max);
  if (flags[kFailed] != 0) too_many_failed = true;
  if (flags[kStop] != 0 && stop_asked_s < 0) {
    stop_asked_s = clock.seconds();
    log::info("stop", "in_flight={} grace_s={}", in_flight.size(), options.grace_seconds);
  }
  return {flags[kStop] != 0 || too_many_failed || stop_asked_s >= 0, flags[kDrop] != 0 || too_many_failed,
          flags[kBroken] != 0};
}

void EvalRun::State::count_engine(const engine::EngineCounters& counters) {
  progress.prefill_s = counters.prefill_s;
  progress.decode_s = counters.decode_s;
  progress.prefill_rows = counters.prefill_rows;
  progress.decode_rows = counters.decode_rows;
  progress.total_s = progress.load_s + clock.seconds();
}

void EvalRun::State::report_status(const char* state, bool always) {
  if (!speaks() || (!always && since_status.seconds() < options.status_seconds)) return;
  since_status.restart();
  guarded([&] {
    RunStatus status{state, records->n_wanted(), records->n_present(), records->n_failed(), clock.seconds(),
                     0,     std::nullopt};
    if (answered > 0) {
      status.answers_per_s = static_cast<double>(answered) / status.seconds;
      status.seconds_left = static_cast<double>(status.total - status.done) / status.answers_per_s;
    }
    write_status(*folder, status);
    if (journal) journal->append_progress(progress);
    log::info("progress", "state={} done={} total={} failed={} seconds={:.1f} answers_per_s={:.2f}{}", state,
              status.done, status.total, status.failed, status.seconds, status.answers_per_s,
              status.seconds_left ? fmt::format(" left_s={:.0f}", *status.seconds_left) : std::string());
  });
}

void EvalRun::State::loop(engine::Engine& engine, parallel::Watchdog* watchdog) {
  std::size_t next = 0;
  StepFlags flags = decide();
  while (true) {
    // A bound on those that need no engine too: stops are looked at between.
    for (std::int64_t n = 0;
         n < options.max_in_flight && !flags.stop && next < todo.size() && engine.pending() < options.max_in_flight;
         ++n) {
      submit(engine, next++);
    }
    if (flags.broken || flags.drop || (engine.pending() == 0 && (flags.stop || next == todo.size()))) break;
    engine.step();
    for (engine::JobResult& result : engine.take_finished()) {
      keep(in_flight.at(result.tag), result);
      in_flight.erase(result.tag);
    }
    count_engine(engine.counters());
    if (watchdog != nullptr) watchdog->progress(fmt::format("step {}", engine.counters().steps));
    report_status(flags.stop ? "cancelling" : "in_progress", false);
    flags = decide();
  }
}

ExitCode EvalRun::State::finish_on_rank_0(std::string& table) {
  RunScores scores(subject.tasks.tokenizer);
  const bool whole = records->n_present() == records->n_wanted();
  // A finished run is shown again, not written again.
  const bool shown_again = whole && !worked && std::filesystem::exists(folder->file("summary.json")) &&
                           std::filesystem::exists(folder->file("results.jsonl"));
  if (shown_again) {
    read_results(requests, *records, scores);
  } else {
    report_status("finalizing", true);
    write_results(*folder, requests, *records, scores);
  }
  RunReport report;
  report.identity = identity;
  report.options = subject.options;
  report.first_start = folder->first_start();
  report.finished = utc_now();
  report.starts = std::max(1, worked ? header.number : records->last_start());
  report.totals = scores.totals();
  report.tasks = scores.tasks();
  report.all_starts = records->progress();
  report.all_starts.add(progress);
  if (worked) report.last_start = spread_over_ranks(ranks_progress);
  if (!shown_again) {
    if (whole) io::write_file(folder->file("summary.json"), to_json(report).dump(2) + "\n");
    const char* const state = whole ? "completed" : too_many_failed ? "failed" : "cancelled";
    write_status(*folder, {state, records->n_wanted(), records->n_present(), records->n_failed(), clock.seconds(), 0,
                           std::nullopt});
  }
  table = to_table(report);
  if (!whole) return too_many_failed ? ExitCode::some_failed : ExitCode::stopped;
  return records->n_failed() > 0 ? ExitCode::some_failed : ExitCode::ok;
}

RequestRules rules_of(const EvalOptions& options, const EvalSubject& subject) {
  RequestRules rules;
  rules.vocab_size = subject.vocab_size;
  rules.max_length = options.max_length > 0 ? options.max_length : subject.max_length;
  rules.seed = options.seed;
  rules.model_names = subject.model_names;
  return rules;
}

EvalRun::EvalRun(parallel::Collectives& world, EvalOptions options, EvalSubject subject)
    : state_(std::make_unique<State>(world, std::move(options), std::move(subject))) {
  State& state = *state_;
  state.subject.tasks.prefix_token = state.options.prefix_token.value_or(state.subject.tasks.bos);
  parallel::agree(world, [&] {
    require(state.subject.tasks.prefix_token < state.subject.vocab_size, ExitCode::usage,
            "--prefix-token {} is no token of the model, whose ids end at {}", state.subject.tasks.prefix_token,
            state.subject.vocab_size - 1);
  });
  state.read_requests_and_check(read_once(world, state.options));
  parallel::agree(world, [&] {
    if (state.speaks()) state.open_folder();
  });
  state.share_todo();
}

EvalRun::~EvalRun() = default;

std::int64_t EvalRun::n_left() const {
  std::int64_t n = 0;
  for (const auto& [request, repeats] : state_->todo) n += std::ssize(repeats);
  return n;
}

void EvalRun::work(engine::Engine& engine, parallel::Watchdog* watchdog, double load_s) {
  State& state = *state_;
  parallel::agree(state.world, [&] {
    if (state.speaks()) state.begin_journal();
  });
  state.worked = true;
  state.progress.load_s = load_s;
  state.clock.restart();
  state.report_status("in_progress", true);
  state.loop(engine, watchdog);
  state.guarded([&] {
    state.journal->append_progress(state.progress);
    state.journal->sync();
  });
  state.progress.total_s = state.progress.load_s + state.clock.seconds();
  parallel::agree(state.world, [&] {
    if (state.write_error) std::rethrow_exception(state.write_error);
  });
  state.ranks_progress = state.world.all_gather_host(state.progress);
}

ExitCode EvalRun::finish(std::string& table) {
  State& state = *state_;
  std::int64_t code = 0;
  parallel::agree(state.world, [&] {
    if (state.speaks()) code = static_cast<std::int64_t>(state.finish_on_rank_0(table));
  });
  return static_cast<ExitCode>(state.world.all_reduce_host(code, parallel::Reduce::max));
}

}  // namespace bathys::eval
