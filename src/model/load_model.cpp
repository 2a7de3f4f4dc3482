// SPDX-License-Identifier: Apache-2.0
#include "model/load_model.hpp"

#include "model/weight_packer.hpp"
#include "parallel/agree.hpp"

namespace bathys::model {
namespace {

// Where each rank of a replica stands: tensor ranks of a group side by side.
std::vector<catalog::RankPlace> places_of(const parallel::Layout& layout) {
  const int ranks = layout.groups * layout.tensor;
  std::vector<catalog::RankPlace> places;
  places.reserve(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) places.push_back({layout.tensor, rank % layout.tensor, ranks, rank});
  return places;
}

}  // namespace

std::unique_ptr<Model> load_model(const weights::ShardModel& shards, parallel::Collectives& world,
                                  const parallel::RankGrid& grid, const ModelOptions& options,
                                  const weights::LoadOptions& load_options, weights::LoadReport* report) {
  parallel::agree(world, [&] { catalog::require_tensor_ranks(shards.config, grid.layout.tensor); });
  const std::vector<catalog::RankPlace> places = places_of(grid.layout);
  WeightPacker packer(shards.config, places[static_cast<std::size_t>(grid.replica->rank())]);
  weights::LoadOptions wanted = load_options;
  wanted.wanted = WeightPacker::wants;
  const weights::LoadReport loaded =
      weights::load({world, *grid.replica, grid.copies.get()}, shards, places, packer, wanted);
  if (report != nullptr) *report = loaded;
  ModelWeights packed = parallel::agree(world, [&] { return packer.take(); });
  packed.token_map = shards.index.compressed_token_map;
  return std::make_unique<Model>(shards.config, std::move(packed), grid, options);
}

}  // namespace bathys::model
