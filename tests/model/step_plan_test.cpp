// SPDX-License-Identifier: Apache-2.0
// What a step is refused for, before any row of it runs.
#include "model/step_plan.hpp"

#include "config/model_files.hpp"
#include "io/temp_folder.hpp"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using model::Sequence;
using model::Step;

config::ModelConfig nano() { return config_of("inputs/models/nano/config.json"); }

class StepPlan : public testing::Test {
 protected:
  // A sequence with room for the rows of the test.
  Sequence sequence() {
    Sequence made = arena_.make();
    arena_.reserve(made, 16);
    return made;
  }
  void build(Step step) { plan_.build(Exec(), step, token_map_); }
  void expect_refused(Step step, std::string_view words) {
    expect_error(ExitCode::internal, {words}, [&] { build(std::move(step)); });
  }

  const config::ModelConfig config_ = nano();
  const std::vector<std::int32_t> token_map_ = std::vector<std::int32_t>(static_cast<std::size_t>(config_.vocab_size));
  model::CacheArena arena_{config_};
  model::StepPlan plan_{config_, arena_.layout(), 8, true};
};

TEST_F(StepPlan, ASequenceStandsInOneChunk) {
  Sequence one = sequence(), other = sequence();
  build({{{&one, {1, 2}, {1, 0}, {}}, {&other, {1}, {0}, {}}}});
  EXPECT_EQ(plan_.rows(), 3);
  expect_refused({{{&one, {1}, {0}, {}}, {&other, {1}, {0}, {}}, {&one, {2}, {0}, {}}}},
                 "stands in two of the 3 chunks");
}

TEST_F(StepPlan, ListsOfAChunkAreOfOneLengthAndItsTokensOfTheVocabulary) {
  Sequence one = sequence();
  expect_refused({{{&one, {1, 2}, {0}, {}}}}, "a chunk of 2 tokens has 1 reaches");
  expect_refused({{{&one, {1, 2}, {1, 0}, {0}}}}, "1 image marks");
  expect_refused({{{&one, {-1}, {0}, {}}}}, "token id -1");
  expect_refused({{{&one, {static_cast<std::int32_t>(config_.vocab_size)}, {0}, {}}}}, "outside the vocabulary");
}

TEST_F(StepPlan, MoreRowsThanTheBuffersHoldAreRefused) {
  Sequence one = sequence();
  const auto rows = [&](std::size_t n) {
    return Step{{{&one, std::vector<std::int32_t>(n, 1), std::vector<std::int64_t>(n, 0), {}}}};
  };
  build(rows(8));
  expect_refused(rows(9), "9 rows, at most 8 fit");
}

}  // namespace
}  // namespace bathys::test
