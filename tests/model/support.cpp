// SPDX-License-Identifier: Apache-2.0
#include "model/support.hpp"

#include "convert/convert.hpp"
#include "parallel/agree.hpp"

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <random>

#include <unistd.h>

namespace bathys::test {

parallel::Collectives& test_ranks() {
  static const std::unique_ptr<parallel::Collectives> ranks = parallel::make_world_collectives();
  return *ranks;
}

namespace {

std::unique_ptr<model::Model> load(const std::string& name, const model::ModelOptions& options,
                                   parallel::Collectives& ranks, const parallel::RankGrid& grid) {
  const std::string checkpoint =
      std::string(BATHYS_TEST_DATA) + (name == "nano" ? "/../inputs/models/nano" : "/golden/" + name + "/model");
  // One folder per job: tests run side by side.
  const std::string unique = "bathys-model-test-" + std::to_string(::getpid()) + "-" + name;
  const std::string folder = test_ranks().broadcast_host((std::filesystem::temp_directory_path() / unique).string(), 0);
  parallel::agree(test_ranks(), [&] {
    if (test_ranks().rank() == 0) convert::convert(checkpoint, folder);
  });
  auto model = model::load_model(weights::open_shards(ranks, folder), ranks, grid, options);
  test_ranks().barrier();
  if (test_ranks().rank() == 0) std::filesystem::remove_all(folder);
  return model;
}

}  // namespace

std::unique_ptr<model::Model> load_test_model(const std::string& name, const model::ModelOptions& options) {
  static const parallel::RankGrid grid = parallel::make_rank_grid(test_ranks(), {1, 1, test_ranks().size()});
  return load(name, options, test_ranks(), grid);
}

std::unique_ptr<model::Model> load_test_model(const std::string& name, const model::ModelOptions& options,
                                              const parallel::RankGrid& grid) {
  return load(name, options, test_ranks(), grid);
}

std::unique_ptr<model::Model> load_test_model_alone(const std::string& name, const model::ModelOptions& options) {
  static const std::unique_ptr<parallel::Collectives> alone = parallel::make_single_collectives();
  static const parallel::RankGrid grid = parallel::make_rank_grid(*alone, {1, 1, 1});
  return load(name, options, *alone, grid);
}

bool full_tier() {
  const char* value = std::getenv("BATHYS_FULL");
  return value != nullptr && std::string(value) == "1";
}

std::vector<std::vector<float>> logits_in_chunks(model::Model& model, const std::vector<std::int32_t>& tokens,
                                                 const std::vector<std::int64_t>& chunks,
                                                 const std::vector<std::uint8_t>& image) {
  std::vector<std::vector<float>> out;
  model::Sequence sequence = model.caches().make();
  std::size_t at = 0;
  for (std::size_t step = 0; at < tokens.size(); ++step) {
    const auto n = std::min(static_cast<std::size_t>(chunks[std::min(step, chunks.size() - 1)]), tokens.size() - at);
    model::SequenceChunk chunk{
        &sequence,
        {tokens.begin() + static_cast<std::ptrdiff_t>(at), tokens.begin() + static_cast<std::ptrdiff_t>(at + n)},
        std::vector<std::int64_t>(n, 0),
        {}};
    if (!image.empty())
      chunk.image.assign(image.begin() + static_cast<std::ptrdiff_t>(at),
                         image.begin() + static_cast<std::ptrdiff_t>(at + n));
    model::Step s;
    s.chunks.push_back(std::move(chunk));
    model.run(s);
    for (std::int64_t i = 0; i < model.wanted(); ++i) out.push_back(model.logits(i));
    at += n;
  }
  return out;
}

std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocab, std::uint64_t seed) {
  std::mt19937_64 generator(seed);
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n; ++i)
    tokens.push_back(static_cast<std::int32_t>(generator() % static_cast<std::uint64_t>(vocab)));
  return tokens;
}

}  // namespace bathys::test
