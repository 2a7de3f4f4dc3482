// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to EvalRun's sources.

#include "core/timer.hpp"
#include "eval/eval_run.hpp"
#include "eval/journal.hpp"
#include "eval/look_ahead.hpp"
#include "eval/result_files.hpp"
#include "eval/run_counters.hpp"
#include "parallel/agree.hpp"

#include <exception>
#include <map>
#include <unordered_map>
#include <utility>

namespace bathys::eval {

// A job that the engine holds, or an answer that needs none.
struct InFlight {
  std::size_t request = 0;
  std::vector<std::int32_t> repeats;
  PreparedTask task;
  std::int64_t tokens = 0;  // what the engine holds for it, in tokens
  double submitted_s = 0;
};

// What a replica decides together at the edge of a step.
struct StepFlags {
  bool stop = false;    // no new jobs
  bool drop = false;    // what is in flight is dropped too
  bool broken = false;  // a writer could not write
  bool busy = true;     // some group has work, or may still get some
};

struct EvalRun::State {
  State(parallel::Collectives& ranks, parallel::Watchdog* dog, EvalOptions run_options, EvalSubject run_subject)
      : world(ranks), watchdog(dog), options(std::move(run_options)), subject(std::move(run_subject)) {}

  parallel::Collectives& world;
  parallel::Watchdog* watchdog;
  EvalOptions options;
  EvalSubject subject;
  std::vector<Request> requests;
  std::vector<std::pair<std::size_t, std::vector<std::int32_t>>>
      todo;  // request, repeats without a record; the same on all ranks
  std::map<std::pair<std::size_t, std::int32_t>, io::Hash128>
      given_up;  // failed records of answers in `todo`, by request and repeat; the same on all ranks
  RunIdentity identity;
  std::int64_t n_left_at_start = 0;  // answers in `todo`
  std::int64_t failed_before = 0;    // failures on record when this start began; the same on all ranks
  std::int64_t n_misfits = 0;        // of those, the ones that found no room; 0 where none is tried again

  // Rank 0 alone.
  std::unique_ptr<RunFolder> folder;
  std::unique_ptr<RecordTable> records;
  Timer since_status;

  // The first rank of each group, which writes the group's journal.
  std::unique_ptr<JournalWriter> journal;
  Timer since_progress;
  std::exception_ptr write_error;

  // Of this start.
  StartHeader header;
  const parallel::RankGrid* grid = nullptr;
  std::unique_ptr<RunCounters> counters;
  Timer clock;
  Progress progress;
  std::vector<PhaseSeconds> ranks_seconds;
  std::unordered_map<std::int64_t, InFlight> in_flight;
  std::int64_t tokens_in_flight = 0;
  std::int64_t next_seen = 0;        // requests that were taken, as last seen
  std::unique_ptr<LookAhead> ahead;  // those of this group that the engine has not got yet
  bool worked = false;
  bool too_many_failed = false;
  double stop_asked_s = -1;

  [[nodiscard]] bool speaks() const { return world.rank() == 0; }
  [[nodiscard]] bool writes() const { return grid->tensor_id == 0; }
  [[nodiscard]] bool leads_replica() const { return grid->replica->rank() == 0; }
  [[nodiscard]] int takers() const { return grid->layout.replicas * grid->layout.groups; }
  [[nodiscard]] std::int64_t n_todo() const { return std::ssize(todo); }

  // eval_run.cpp
  void read_requests_and_check(const std::string& text);
  [[nodiscard]] StartHeader start_header(int number, std::string time) const;
  void open_folder(const Pulse& pulse);
  void share_todo();
  void begin_journal();
  void end_journal();
  ExitCode finish_on_rank_0(std::string& table, std::string& cause, const Pulse& pulse);

  // run_loop.cpp
  void loop(engine::Engine& engine);
  void begin_look_ahead();
  void take(std::int64_t n);
  void take_requests(engine::Engine& engine);
  void submit(engine::Engine& engine);
  void keep(const InFlight& job, const engine::JobResult& result);
  void finish_job(const engine::JobResult& result);
  [[nodiscard]] std::int64_t reasons_to_stop() const;
  StepFlags decide(std::int64_t pending);
  void count_engine(const engine::Engine& engine);
  void wait_for_others();
  void note_progress();
  [[nodiscard]] RunStatus status_now(const char* state) const;
  void report_status(const char* state, bool always);
  void report_end(const parallel::AgreedError& error);

  // A writer's work between two gates: the first failure is kept until the ranks meet.
  template <class Write>
  void guarded(Write&& write) {
    if (write_error) return;
    const Timer timer;
    try {
      write();
    } catch (...) {
      write_error = std::current_exception();
    }
    progress.write_s += timer.seconds();
  }
};

}  // namespace bathys::eval
