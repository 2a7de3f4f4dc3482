// SPDX-License-Identifier: Apache-2.0
#include "eval/eval_run.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "eval/eval_run_state.hpp"
#include "eval/request_reader.hpp"
#include "eval/run_order.hpp"
#include "eval/share.hpp"
#include "io/atomic_file.hpp"
#include "io/hash.hpp"
#include "parallel/agree.hpp"
#include "parallel/lead.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>

namespace bathys::eval {
namespace {

// The request file must not be one that the run writes.
void refuse_output_as_input(const EvalOptions& options) {
  const auto refuse = [&](const std::string& output) {
    std::error_code none;
    require(!std::filesystem::equivalent(options.requests, output, none), ExitCode::bad_requests,
            "{}: output_is_input: the run would replace its own request file; copy it elsewhere", options.requests);
  };
  for (const char* name : kRunFiles) {
    refuse(options.out + "/" + name);
    refuse(io::partial_name(options.out + "/" + name));
  }
  std::error_code none;
  for (const auto& journal : std::filesystem::directory_iterator(options.out + "/journal", none))
    refuse(journal.path().string());
}

// Rank 0's text on every rank, with rank 0's error on every rank.
std::string read_once(parallel::Collectives& world, parallel::Watchdog* watchdog, const EvalOptions& options) {
  std::string text;
  parallel::lead(world, watchdog, "read requests", [&](const Pulse& pulse) {
    refuse_output_as_input(options);
    text = read_request_text(options.requests, pulse);
  });
  return world.broadcast_host(text, 0);
}

}  // namespace

void EvalRun::State::read_requests_and_check(const std::string& text) {
  const RequestRules rules = rules_of(options, subject);
  RequestFile file = read_requests(text, rules, parallel::pulse_of(watchdog, "check requests"));
  if (speaks()) {
    for (const RequestFault& fault : file.faults) log::write(log::Level::warn, fault.text());
    if (const std::string words = oversights(file); !words.empty()) log::warn("requests", "note=\"{}\"", words);
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

StartHeader EvalRun::State::start_header(int number, std::string time) const {
  return {number, std::move(time), world.size(), options.layout, options.memory_gib};
}

void EvalRun::State::open_folder(const Pulse& pulse) {
  folder = std::make_unique<RunFolder>(options.out, identity);
  take_journals(*folder, identity, options.take_from, pulse);
  records = std::make_unique<RecordTable>(requests, journal_run(identity));
  records->read(folder->path(), pulse);
  header = start_header(records->last_start() + 1, utc_now());
  if (records->damaged_lines() > 0) {
    log::warn("journal",
              "damaged_lines={} (left by a kill or a power loss, or of another run; what they held is done again)",
              records->damaged_lines());
  }
  if (options.retry_failed && !options.no_new_answers) records->forget_failed();
}

// Made anew when more is to be answered.
void EvalRun::State::share_todo() {
  todo.clear();
  given_up.clear();
  n_left_at_start = 0;
  enum : char { kAnswered = '1', kLeft = '0', kGivenUp = '2' };
  std::string flags;                // one for each answer wanted
  std::vector<io::Hash128> failed;  // of those given up
  if (speaks()) {
    for (std::size_t i = 0; i < requests.size(); ++i) {
      for (std::int32_t repeat = 0; repeat < requests[i].n_repeats(); ++repeat) {
        const auto before = records->forgotten(i, repeat);
        if (before) failed.push_back(*before);
        flags.push_back(before ? kGivenUp : records->at(i, repeat).present() ? kAnswered : kLeft);
      }
    }
  }
  flags = world.broadcast_host(flags, 0);
  failed.resize(static_cast<std::size_t>(std::count(flags.begin(), flags.end(), kGivenUp)));
  world.broadcast_host(failed.data(), std::ssize(failed) * static_cast<std::int64_t>(sizeof(io::Hash128)), 0);
  failed_before = speaks() ? records->n_failed() : 0;
  n_misfits = speaks() && !options.no_new_answers ? records->n_misfits() : 0;
  for (std::int64_t* const count : {&failed_before, &n_misfits}) world.broadcast_host(count, sizeof *count, 0);
  std::size_t at = 0, n_given_up = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    std::vector<std::int32_t> repeats;
    for (std::int32_t repeat = 0; repeat < requests[i].n_repeats(); ++repeat) {
      const char flag = flags[at++];
      if (flag != kAnswered) repeats.push_back(repeat);
      if (flag == kGivenUp) given_up.emplace(std::pair(i, repeat), failed[n_given_up++]);
    }
    n_left_at_start += std::ssize(repeats);
    if (!repeats.empty()) todo.emplace_back(i, std::move(repeats));
  }
  sort_for_running(requests, todo);
}

// A journal for each group; rank 0 makes the folder before the others look for it.
void EvalRun::State::begin_journal() {
  parallel::agree(world, [&] {
    if (!speaks()) return;
    // From here on the result files of an earlier start may be out of date; summary.json, written last, says that they
    // are whole.
    std::error_code none;
    std::filesystem::remove(folder->file("summary.json"), none);
    io::sync_folder(folder->path());
    io::make_folder(folder->path() + "/journal");
    log::info("run", "requests={} answers={} on_record={} start={}", requests.size(), records->n_wanted(),
              records->n_present(), header.number);
  });
  world.broadcast_host(&header.number, sizeof header.number, 0);
  header = start_header(header.number, world.broadcast_host(header.time, 0));
  parallel::agree(world, [&] {
    if (writes()) journal = std::make_unique<JournalWriter>(options.out, header, world.rank(), journal_run(identity));
  });
}

// All journals of this start are durable, and rank 0 reads what the groups wrote.
void EvalRun::State::end_journal() {
  if (journal) {
    guarded([&] {
      journal->append_progress(progress);
      journal->sync();
    });
  }
  parallel::agree(world, [&] {
    if (write_error) std::rethrow_exception(write_error);
  });
  const std::vector<std::int64_t> bytes = world.all_gather_host(journal ? journal->bytes() : std::int64_t{0});
  parallel::lead(world, watchdog, "merge journals", [&](const Pulse& pulse) {
    for (std::size_t rank = 0; rank < bytes.size(); ++rank) {
      if (bytes[rank] == 0) continue;
      records->read_writer(folder->path(), header.number, static_cast<int>(rank), bytes[rank], pulse);
    }
  });
}

ExitCode EvalRun::State::finish_on_rank_0(std::string& table, std::string& cause, const Pulse& pulse) {
  RunScores scores(subject.tasks.tokenizer);
  const bool whole = records->n_present() == records->n_wanted();
  // A finished run is shown again, not written again, unless somebody lost or cut a file of it.
  const bool shown_again = whole && !worked && results_are_whole(*folder);
  if (shown_again) {
    read_results(requests, *records, scores, pulse);
  } else {
    report_status("finalizing", true);
    write_results(*folder, requests, *records, scores, pulse);
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
  if (worked) report.last_start = spread_over_ranks(ranks_seconds);
  if (!shown_again) {
    if (whole) {
      Json summary = to_json(report);
      summary["files"] = result_sizes(*folder);
      io::write_file(folder->file("summary.json"), summary.dump(2) + "\n");
    }
    const char* const state = whole ? "completed" : too_many_failed ? "failed" : "cancelled";
    write_status(*folder, {state, records->n_wanted(), records->n_present(), records->n_failed(), clock.seconds(), 0,
                           std::nullopt});
  }
  table = to_table(report);
  if (!whole) {
    if (!too_many_failed) return ExitCode::stopped;
    cause = fmt::format(
        "more than {} requests failed (--max-failed), so the run was stopped; {} holds all answers so far; the same "
        "command with a larger --max-failed goes on",
        options.max_failed, folder->file("results.partial.jsonl"));
    return ExitCode::some_failed;
  }
  if (records->n_failed() == 0) return ExitCode::ok;
  cause = fmt::format("some requests failed; {} lists them, --retry-failed answers them again",
                      folder->file("failed.jsonl"));
  return ExitCode::some_failed;
}

RequestRules rules_of(const EvalOptions& options, const EvalSubject& subject) {
  RequestRules rules;
  rules.vocab_size = subject.vocab_size;
  rules.max_length = options.max_length > 0 ? options.max_length : subject.max_length;
  rules.seed = options.seed;
  rules.model_names = subject.model_names;
  return rules;
}

EvalRun::EvalRun(parallel::Collectives& world, parallel::Watchdog* watchdog, EvalOptions options, EvalSubject subject)
    : state_(std::make_unique<State>(world, watchdog, std::move(options), std::move(subject))) {
  State& state = *state_;
  state.subject.tasks.prefix_token = state.options.prefix_token.value_or(state.subject.tasks.bos);
  parallel::agree(world, [&] {
    require(state.subject.tasks.prefix_token < state.subject.vocab_size, ExitCode::usage,
            "--prefix-token {} is no token of the model, whose ids end at {}", state.subject.tasks.prefix_token,
            state.subject.vocab_size - 1);
  });
  state.read_requests_and_check(read_once(world, watchdog, state.options));
  parallel::lead(world, watchdog, "read journals", [&](const Pulse& pulse) { state.open_folder(pulse); });
  state.share_todo();
}

EvalRun::~EvalRun() = default;

std::int64_t EvalRun::n_left() const { return state_->n_left_at_start; }
std::int64_t EvalRun::n_misfits() const { return state_->n_misfits; }

void EvalRun::fit_into(std::int64_t cache_bytes) {
  State& state = *state_;
  if (state.n_misfits == 0) return;
  const std::int64_t before = state.n_misfits;
  if (state.speaks()) state.records->forget_misfits(cache_bytes);
  state.share_todo();
  if (state.speaks()) {
    log::info("misfits", "answers={} fit_now={} text=\"did not fit into the caches of an earlier start\"", before,
              before - state.n_misfits);
  }
}

void EvalRun::work(engine::Engine& engine, const parallel::RankGrid& grid, double load_s) {
  State& state = *state_;
  state.grid = &grid;
  state.begin_journal();
  state.counters = std::make_unique<RunCounters>(state.world, state.takers());
  state.worked = true;
  state.progress.load_s = load_s;
  state.clock.restart();
  state.report_status("in_progress", true);
  state.loop(engine);
  state.wait_for_others();
  state.progress.total_s = state.progress.load_s + state.clock.seconds();
  try {
    state.end_journal();
  } catch (const parallel::AgreedError& error) {
    state.report_end(error);
    throw;
  }
  state.grid = nullptr;
  state.ranks_seconds = state.world.all_gather_host<PhaseSeconds>(state.progress);
}

ExitCode EvalRun::finish(std::string& table, std::string& cause) {
  State& state = *state_;
  std::int64_t code = 0;
  try {
    parallel::lead(state.world, state.watchdog, "write results", [&](const Pulse& pulse) {
      code = static_cast<std::int64_t>(state.finish_on_rank_0(table, cause, pulse));
    });
  } catch (const parallel::AgreedError& error) {
    state.report_end(error);
    throw;
  }
  return static_cast<ExitCode>(state.world.all_reduce_host(code, parallel::Reduce::max));
}

}  // namespace bathys::eval
