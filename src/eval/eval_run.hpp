// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/exit_code.hpp"
#include "engine/engine.hpp"
#include "eval/report.hpp"
#include "eval/request.hpp"
#include "eval/request_reader.hpp"
#include "eval/share.hpp"
#include "eval/task.hpp"
#include "parallel/collectives.hpp"
#include "parallel/rank_grid.hpp"
#include "parallel/watchdog.hpp"

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

// One start of a run, on all ranks together: rank 0 reads the requests, the groups take them in turn and write journals
// of their own, rank 0 merges these into the results.
namespace bathys::eval {

struct EvalOptions {
  std::string requests;  // a file, a pipe, or "-"
  std::string out;
  std::uint64_t seed = 0;                    // of requests without one
  std::int64_t max_length = 0;               // 0: the model's
  std::optional<std::int32_t> prefix_token;  // none: BOS
  double max_seconds = 0;                    // 0: no limit
  double grace_seconds = 20;                 // for what is in flight when a stop is asked for
  bool retry_failed = false;
  bool no_new_answers = false;         // nothing is computed, so nothing on record is given up to be tried again
  Share share;                         // of the requests that this run answers
  std::vector<std::string> take_from;  // run folders whose answers are taken over
  std::int64_t max_failed = -1;        // stop when more answers failed; < 0: no limit
  double status_seconds = 10;          // between progress lines
  std::string layout;
  double memory_gib = 0;             // 0: not limited
  std::int64_t max_in_flight = 128;  // jobs that a group's engine holds and has not finished
  int prepare_threads = 1;           // of each rank, that turn requests into tokens ahead of the steps; 0: none
  std::vector<unsigned char> cpus;   // where those may run, one bit each; empty: as the caller
};

// What the run is about, before any weight is read.
struct EvalSubject {
  std::vector<std::string> model_names;  // what a request's `model` may say
  std::int64_t max_length = 0;           // the model's
  std::int64_t vocab_size = 0;
  TaskContext tasks;     // prefix_token is set by the run
  RunIdentity identity;  // of model, tokenizer, numerics, device; the run adds its own
  std::vector<std::pair<std::string, std::string>> options;  // for the report
};

// What requests of such a run are checked against.
[[nodiscard]] RequestRules rules_of(const EvalOptions& options, const EvalSubject& subject);

class EvalRun {
 public:
  // Reads the requests (rank 0, once) and checks all of them, opens the run folder, reads its journals and tells every
  // rank what is left. Collective.  `world`, `watchdog` (or null) and what `subject` points to must outlive the run.
  //   throws AgreedError on all ranks: bad_requests, bad_input, usage
  EvalRun(parallel::Collectives& world, parallel::Watchdog* watchdog, EvalOptions options, EvalSubject subject);
  ~EvalRun();
  EvalRun(const EvalRun&) = delete;
  EvalRun& operator=(const EvalRun&) = delete;

  // Answers without a record; 0: finish() needs no model.
  [[nodiscard]] std::int64_t n_left() const;
  // Answers on record that failed because they did not fit into the caches of an earlier start.
  [[nodiscard]] std::int64_t n_misfits() const;
  // Those of them that take no more than `cache_bytes` of this start's caches (0: no bound; the same on all ranks) are
  // left to be answered too.  Before work().  Collective.
  void fit_into(std::int64_t cache_bytes);

  // Answers what is left, until all is done or a stop is asked for.  `grid`: the layout under `engine`.  `load_s`:
  // seconds spent on the way here.  Collective.
  //   throws AgreedError when a journal cannot be written
  void work(engine::Engine& engine, const parallel::RankGrid& grid, double load_s);

  // Writes the result files and returns the run's exit code, the same on all ranks: ok, some_failed, stopped.  `table`
  // and, of some_failed, `cause`: what rank 0 should print, empty elsewhere.  Collective.
  ExitCode finish(std::string& table, std::string& cause);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bathys::eval
