// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/layers.hpp"
#include "model/sequence.hpp"
#include "model/step.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

namespace bathys::model {

struct ModelOptions {
  std::int64_t max_rows = 512;  // rows of one step
  std::int64_t head_rows = 64;  // rows whose logits are held at once
  bool cone =
      true;  // skip, layer by layer, the rows that no wanted logit and no later token can see; changes no number
};

// A row whose sums were not finite: its sequence is lost from here on, the others are untouched.
struct RowFailure {
  int chunk = 0;  // index in the step
  int layer = 0;
  std::int64_t position = 0;
};

// What is asked of one wanted row.
struct HeadQuery {
  std::int64_t wanted_row = 0;  // number among the step's wanted rows
  std::int64_t target = -1;     // token to score; -1: draw one
  std::uint64_t key = 0;        // keys of the draw, as kernels::DrawKeys
  std::int64_t position = 0;
  std::int32_t repeat = 0;
  float temperature = 0;
  double top_p = 1;
  int top_logprobs = 0;
};

struct HeadAnswer {
  bool finite = false;      // no NaN among the logits, and the largest is a number; else the rest is unset
  std::int64_t token = -1;  // the target, or the token drawn
  float logprob = 0;        // of `token`, under the plain softmax over the whole vocabulary
  bool greedy = false;      // `token` is the argmax, ties to the lowest id
  std::vector<std::pair<std::int32_t, float>> top;  // the best log-probabilities, ties to the lower id
};

// The text model on the ranks of a replica.  The tensor ranks of a group make the same calls with the same arguments
// and get the same answers, bit for bit whatever the layout; each group has its own sequences.  All groups of the
// replica run() the same number of steps, one without work an empty one, since they meet in the experts and the n-gram
// tables; what a group asks of the head is its own.
class Model {
 public:
  // grid: the ranks over which `weights` is cut; outlives the model.
  Model(const config::ModelConfig& config, ModelWeights weights, const parallel::RankGrid& grid,
        const ModelOptions& options);
  ~Model();
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;

  [[nodiscard]] const config::ModelConfig& config() const;
  [[nodiscard]] const ModelOptions& options() const;
  // Where sequences come from; they must end before the model does.
  [[nodiscard]] CacheArena& caches();
  // An independent copy, as CacheArena::fork.
  [[nodiscard]] Sequence fork(const Sequence& from);

  // Runs the rows of a step and moves their sequences on.  Keeps the hidden states of the wanted rows (reach 0) until
  // the next run.
  //   returns the first failed row of each failed chunk, the same on all ranks of the group
  std::vector<RowFailure> run(const Step& step);
  // Wanted rows of the last step.
  [[nodiscard]] std::int64_t wanted() const;

  // Log-probabilities and draws for wanted rows of the last step, in chunks of head_rows.
  std::vector<HeadAnswer> head(std::span<const HeadQuery> queries);
  // All logits of one wanted row [V], for tests and reports.
  std::vector<float> logits(std::int64_t wanted_row);

  // Who watches the next steps; null: nobody.  It must outlive them.
  void observe(Observer* observer);
  // Called as each layer of a step begins, and with n_layers before each chunk of the head: a sign that the model
  // moves.
  void on_layer(std::function<void(int layer)> begins);
  // Rows that each layer has run so far, shared ones once.
  [[nodiscard]] const std::vector<LayerCounters>& counters() const;
  // Bytes of this rank's memory (on a device: of the device's).
  [[nodiscard]] std::int64_t weight_bytes() const;
  [[nodiscard]] std::int64_t workspace_bytes() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bathys::model
