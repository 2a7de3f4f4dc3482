// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/engine.hpp"
#include "eval/task.hpp"
#include "model/load_model.hpp"
#include "model/memory_plan.hpp"
#include "parallel/rank_grid.hpp"
#include "parallel/session.hpp"
#include "weights/shard_model.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>

namespace bathys::apps {

// How a model runs: what eval and generate have in common.
struct RunOptions {
  std::string model;
  std::string synthetic;  // config of a model to be made in memory instead
  std::uint64_t synthetic_seed = 0;
  std::string layout;
  std::int64_t row_budget = 512;
  double memory_gib = 0;
  bool cone = true, prefix_sharing = true;
  std::string reductions = "exact";
  bool direct = false, checksums = true;
  parallel::SessionOptions session;
};

void add_run_options(CLI::App& app, RunOptions& options);

// The model's files as far as they are needed before any weight: index, config, tokenizer, layout.
struct OpenModel {
  weights::ShardModel shards;
  tokenizer::Tokenizer tokenizer;
  parallel::Layout layout;
  [[nodiscard]] eval::TaskContext tasks() const;
};
// Collective.  throws AgreedError
OpenModel open_model(parallel::Session& session, const RunOptions& options);

// Weights on the ranks and the engine over them.
struct RunningModel {
  std::unique_ptr<parallel::RankGrid> grid;  // the model holds on to it
  std::unique_ptr<model::Model> model;
  std::unique_ptr<engine::Engine> engine;
};
// What the buffers are made for.
[[nodiscard]] model::ModelOptions model_options(const RunOptions& options);
// Sequences that a group holds at once at most.
[[nodiscard]] std::int64_t sequences_alive(const RunOptions& options);
// `budget`: what was announced (announce_memory).  Collective.  throws AgreedError
RunningModel start_model(parallel::Session& session, const OpenModel& open, const RunOptions& options,
                         const model::MemoryBudget& budget);

}  // namespace bathys::apps
