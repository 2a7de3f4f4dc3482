// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/load_model.hpp"

#include <memory>
#include <string>
#include <vector>

namespace bathys::test {

// A golden or nano checkpoint, converted once per build tree and loaded onto all ranks of the test.
//   name: "base", "plain", "vision" (tests/golden) or "nano" (inputs/models)
std::unique_ptr<model::Model> load_test_model(const std::string& name, const model::ModelOptions& options);
// The same, whole on every rank: what the ranks together must equal.
std::unique_ptr<model::Model> load_test_model_alone(const std::string& name, const model::ModelOptions& options);

// Whether the whole product of cases is asked for (BATHYS_FULL=1, set by tests/run.sh --full) or a cover of it.
bool full_tier();

// The same on the ranks of this test, arranged as `grid`, which outlives the model.
std::unique_ptr<model::Model> load_test_model(const std::string& name, const model::ModelOptions& options,
                                              const parallel::RankGrid& grid);

// The group of all ranks of this test program.
parallel::Collectives& test_ranks();

// One sequence fed to a model in pieces; the logits of every row, in order.
//   chunks: rows of each step in turn, the last one repeated to the end
std::vector<std::vector<float>> logits_in_chunks(model::Model& model, const std::vector<std::int32_t>& tokens,
                                                 const std::vector<std::int64_t>& chunks,
                                                 const std::vector<std::uint8_t>& image = {});

// Random token ids from a fixed generator.
std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocab, std::uint64_t seed);

}  // namespace bathys::test
