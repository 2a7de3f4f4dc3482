// SPDX-License-Identifier: Apache-2.0
// Groups of one replica: each runs sequences of its own in the same steps, and gets the bits that it would get alone.
#include "model/support.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using parallel::Layout;

// Every layout of this test's ranks that has several groups; in the full tier those of replicas alone too.
std::vector<Layout> layouts() {
  std::vector<Layout> out;
  const int world = test_ranks().size();
  for (int tensor = 1; tensor <= world; ++tensor) {
    for (int groups = 1; groups * tensor <= world; ++groups) {
      if (world % (groups * tensor) == 0 && tensor < world && (groups > 1 || full_tier()))
        out.push_back({world / (groups * tensor), groups, tensor});
    }
  }
  return out;
}

// What one group does: one sequence in chunks, from some step on.
struct Plan {
  std::vector<std::int32_t> tokens;  // may be none at all
  std::int64_t chunk = 1;
  std::int64_t first_step = 0;  // empty steps before
  [[nodiscard]] std::int64_t steps() const { return first_step + (std::ssize(tokens) + chunk - 1) / chunk; }
};

// The last rows, and some far from them: with a cone, layers run other rows in each step and each group.
bool wanted(const Plan& plan, std::int64_t row) { return row >= std::ssize(plan.tokens) - 3 || row % 71 == 5; }

std::vector<std::vector<float>> run_plan(model::Model& model, const Plan& plan, std::int64_t steps,
                                         std::vector<model::RowFailure>* failures = nullptr) {
  std::vector<std::int64_t> reach(plan.tokens.size());
  for (std::int64_t i = std::ssize(plan.tokens); i-- > 0;)
    reach[static_cast<std::size_t>(i)] = wanted(plan, i) ? 0 : reach[static_cast<std::size_t>(i) + 1] + 1;
  std::vector<std::vector<float>> logits;
  model::Sequence sequence = model.caches().make();
  for (std::int64_t s = 0; s < steps; ++s) {
    const std::int64_t at = std::min((s - plan.first_step) * plan.chunk, std::ssize(plan.tokens));
    const std::int64_t n = std::min(plan.chunk, std::ssize(plan.tokens) - at);
    model::Step step;
    if (s >= plan.first_step && n > 0) {
      step.chunks.push_back({&sequence,
                             {plan.tokens.begin() + at, plan.tokens.begin() + at + n},
                             {reach.begin() + at, reach.begin() + at + n},
                             {}});
    }
    for (const model::RowFailure& failure : model.run(step)) {
      if (failures != nullptr) failures->push_back(failure);
    }
    for (std::int64_t i = 0; i < model.wanted(); ++i) logits.push_back(model.logits(i));
  }
  return logits;
}

std::int64_t most_steps(const Plan& mine) { return test_ranks().all_reduce_host(mine.steps(), parallel::Reduce::max); }

void expect_same_bits(const std::vector<std::vector<float>>& got, const std::vector<std::vector<float>>& want,
                      const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t t = 0; t < got.size(); ++t) {
    ASSERT_TRUE(std::ranges::equal(
        got[t], want[t], {}, [](float v) { return std::bit_cast<std::uint32_t>(v); },
        [](float v) { return std::bit_cast<std::uint32_t>(v); }))
        << what << ": logits of wanted row " << t << " of " << got.size() << " differ";
  }
}

// Lengths and chunks by group: even, uneven, some without anything, some that come late or end early.
std::vector<std::vector<std::array<std::int64_t, 3>>> cases() {  // length, chunk, first step
  return {{{40, 40, 0}, {40, 40, 0}, {40, 40, 0}, {40, 40, 0}},
          {{190, 33, 0}, {9, 2, 1}, {1, 1, 3}, {130, 64, 0}},
          {{0, 1, 0}, {150, 150, 0}, {0, 1, 0}, {64, 5, 2}},
          {{33, 7, 4}, {0, 1, 0}, {90, 90, 1}, {0, 1, 0}}};
}

TEST(Groups, GetTheBitsOfAModelAlone) {
  std::vector<std::string> names = {"nano"};
  if (test_ranks().size() == 2) names.push_back("base");
  if (full_tier()) names = {"base", "plain", "nano"};
  for (const std::string& name : names) {
    const auto alone = load_test_model_alone(name, {.max_rows = 256, .head_rows = 16, .cone = false});
    for (const Layout& layout : layouts()) {
      const parallel::RankGrid grid = parallel::make_rank_grid(test_ranks(), layout);
      for (const bool cone : {false, true}) {
        if (!cone && !full_tier() && test_ranks().size() > 2) continue;
        const auto model = load_test_model(name, {.max_rows = 256, .head_rows = 16, .cone = cone}, grid);
        std::uint64_t seed = 0;
        for (const auto& groups : cases()) {
          const int group = grid.replica_id * layout.groups + grid.group_id;
          const auto [length, chunk, first_step] = groups[static_cast<std::size_t>(group)];
          const Plan plan{random_tokens(length, model->config().vocab_size, ++seed * 10 + std::uint64_t(group)), chunk,
                          first_step};
          expect_same_bits(
              run_plan(*model, plan, most_steps(plan)), run_plan(*alone, plan, plan.steps()),
              name + " " + to_string(layout) + (cone ? " with the cone, case " : ", case ") + std::to_string(seed));
        }
      }
    }
  }
}

TEST(Groups, RunOnlyTheRowsOfTheirOwnCones) {
  for (const Layout& layout : layouts()) {
    const parallel::RankGrid grid = parallel::make_rank_grid(test_ranks(), layout);
    const auto model = load_test_model("nano", {.max_rows = 256}, grid);
    const auto alone = load_test_model_alone("nano", {.max_rows = 256});
    const Plan plan{random_tokens(grid.group_id == 0 ? 200 : 20, model->config().vocab_size, 1), 64, 0};
    run_plan(*model, plan, most_steps(plan));
    run_plan(*alone, plan, plan.steps());
    for (int layer = 0; layer < model->config().n_layers; ++layer) {
      const auto at = static_cast<std::size_t>(layer);
      EXPECT_EQ(model->counters()[at].full_rows, alone->counters()[at].full_rows) << to_string(layout) << layer;
    }
  }
}

// Overwrites one row of the stream with NaN before layer 3: what a broken weight does to it.
class NanInRow : public model::Observer {
 public:
  explicit NanInRow(std::int64_t row) : row_(row) {}
  void layer_input(int layer, const kernels::Mat<kernels::bf16>& h, const kernels::Mat<float>&) override {
    if (layer == 3 && static_cast<std::int64_t>(h.extent(0)) > row_)
      h(static_cast<std::size_t>(row_), 0) = kernels::bf16(NAN);
  }

 private:
  std::int64_t row_;
};

TEST(Groups, ANonfiniteRowIsNamedInItsOwnGroupAndNoOther) {
  const auto alone = load_test_model_alone("nano", {.max_rows = 256, .cone = false});
  for (const Layout& layout : layouts()) {
    const parallel::RankGrid grid = parallel::make_rank_grid(test_ranks(), layout);
    const auto model = load_test_model("nano", {.max_rows = 256, .cone = false}, grid);
    for (int broken = 0; broken < layout.groups; ++broken) {
      const Plan plan{random_tokens(30 + 7 * grid.group_id, model->config().vocab_size, 5), 50, 0};
      NanInRow nan(11);
      const bool mine = grid.group_id == broken;
      if (mine) model->observe(&nan);
      std::vector<model::RowFailure> failures;
      const auto logits = run_plan(*model, plan, most_steps(plan), &failures);
      model->observe(nullptr);
      if (!mine) {
        EXPECT_TRUE(failures.empty()) << to_string(layout);
        expect_same_bits(logits, run_plan(*alone, plan, plan.steps()), to_string(layout) + " beside a broken group");
        continue;
      }
      ASSERT_EQ(failures.size(), 1U) << to_string(layout);
      EXPECT_EQ(failures[0].layer, 3);
      EXPECT_EQ(failures[0].position, 11);
    }
  }
}

TEST(Groups, WithNoRowsAnywhereAStepDoesNothing) {
  for (const Layout& layout : layouts()) {
    const parallel::RankGrid grid = parallel::make_rank_grid(test_ranks(), layout);
    const auto model = load_test_model("nano", {.max_rows = 8}, grid);
    EXPECT_TRUE(model->run({}).empty());
    EXPECT_EQ(model->wanted(), 0);
  }
}

}  // namespace
}  // namespace bathys::test
