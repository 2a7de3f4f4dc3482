// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/job.hpp"
#include "model/model.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace bathys::engine {

struct EngineOptions {
  std::int64_t row_budget = 512;    // rows of one step, prefill chunks and decode rows together
  std::int64_t max_sequences = 64;  // sequences alive at once, held beginnings included; at least 1
  std::int64_t cache_bytes = 0;     // caches of all sequences together, at their full lengths; 0: no bound
  bool prefix_sharing = true;       // compute beginnings that sequences share once, within a job and across jobs
};

struct EngineCounters {
  std::int64_t steps = 0;
  std::int64_t prefill_rows = 0, decode_rows = 0;
  std::int64_t scored_tokens = 0, generated_tokens = 0;
  double prefill_s = 0, decode_s = 0;  // steps that hold only decode rows count as decode
  // Per layer, the rows that the sequences ended so far needed, each by itself; rows_computed() has those computed.
  std::vector<model::LayerCounters> needed;
};

// Runs jobs on ragged steps.  Every rank holds an Engine; the tensor ranks of a group make the same calls with the same
// jobs in the same order (they enter the same collectives) and get the same results.  Groups of one replica have jobs
// of their own and call step() equally often.
class Engine {
 public:
  // `tokenizer` may be null when no job has stops; it must outlive the engine.
  Engine(model::Model& model, const tokenizer::Tokenizer* tokenizer, const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  void submit(ScoreJob job);
  void submit(GenerateJob job);

  // Jobs submitted and not yet taken as finished.
  [[nodiscard]] std::int64_t pending() const;
  // Whether more jobs would help to fill the next steps; beginnings that jobs share count for each.
  [[nodiscard]] bool wants_jobs() const;
  // Runs one step; false when no submitted job had work left.  Then the step had no rows, and other groups of the
  // replica did without this one.
  bool step();
  // Results of jobs that ended since the last call, in the order they ended.
  std::vector<JobResult> take_finished();
  [[nodiscard]] const EngineCounters& counters() const;
  // Per layer, the rows that the model has computed, shared ones once.
  [[nodiscard]] const std::vector<model::LayerCounters>& rows_computed() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bathys::engine
