// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to this folder: what Engine's sources share.
#include "engine/engine.hpp"
#include "engine/prefix_tree.hpp"

#include <cstdint>
#include <list>
#include <memory>
#include <utility>
#include <vector>

namespace bathys::engine {

struct Engine::State {
  State(model::Model& model_in, const tokenizer::Tokenizer* tokenizer_in, const EngineOptions& options_in)
      : model(model_in), tokenizer(tokenizer_in), options(options_in) {
    counters.needed.resize(static_cast<std::size_t>(model.config().n_layers));
  }

  model::Model& model;
  const tokenizer::Tokenizer* tokenizer;
  EngineOptions options;
  EngineCounters counters;
  std::uint64_t n_submitted = 0, n_uses = 0;
  std::list<std::unique_ptr<JobState>> jobs;  // not yet ended, in order of submission
  PrefixTree tree;
  std::list<Track*> waiting;  // not yet given a sequence, in order of submission
  std::vector<Track*> alive;  // with rows to run, in order of admission
  Room used;                  // of the tracks alive and the beginnings held; changed by occupy() and vacate()
  // What ended during this step: lists of the step may still point into it.
  std::vector<std::unique_ptr<JobState>> ended_jobs;
  std::vector<std::unique_ptr<PrefixNode>> ended_nodes;
  std::vector<JobResult> finished;

  void take(std::unique_ptr<JobState> job);

  // admission.cpp
  enum class Start { started, later, no_room };
  void admit();
  Start try_start(Track& track);
  Start start_node(PrefixNode& node, Track& first);
  void launch(Track& track, const Room& room, model::Sequence sequence);
  void occupy(const Room& room);
  void vacate(const Room& room);
  [[nodiscard]] Room room_of(std::int64_t length, const PrefixNode& from) const;
  [[nodiscard]] bool path_fits(const Track& track) const;
  [[nodiscard]] bool fits(const Room& room) const;
  bool make_room(const Room& wanted, const PrefixNode& keep);
  void give_up(PrefixNode& node);
  void release(PrefixNode& node);
  void leave(PrefixNode& node);

  // engine.cpp
  // The tracks that take part in the next step and the rows of each, decode rows first.
  std::vector<std::pair<Track*, std::int64_t>> choose_rows();
  void run(const std::vector<std::pair<Track*, std::int64_t>>& chosen);
  void take_answer(Track& track, std::int64_t position, const model::HeadAnswer& answer);
  void end_track(Track& track);
  void fail_track(Track& track, JobFailure failure);
  void end_job(JobState& job);
};

}  // namespace bathys::engine
