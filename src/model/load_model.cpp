// SPDX-License-Identifier: Apache-2.0
#include "model/load_model.hpp"

#include "model/weight_packer.hpp"
#include "parallel/agree.hpp"

namespace bathys::model {

std::unique_ptr<Model> load_model(const weights::ShardModel& shards, parallel::Collectives& ranks,
                                  const ModelOptions& options, const weights::LoadOptions& load_options,
                                  weights::LoadReport* report) {
  parallel::agree(ranks, [&] { catalog::require_tensor_ranks(shards.config, ranks.size()); });
  const std::vector<catalog::RankPlace> places = weights::one_group_places(ranks.size());
  WeightPacker packer(shards.config, places[static_cast<std::size_t>(ranks.rank())]);
  weights::LoadOptions wanted = load_options;
  wanted.wanted = WeightPacker::wants;
  const weights::LoadReport loaded = weights::load(ranks, shards, places, packer, wanted);
  if (report != nullptr) *report = loaded;
  ModelWeights packed = parallel::agree(ranks, [&] { return packer.take(); });
  packed.token_map = shards.index.compressed_token_map;
  return std::make_unique<Model>(shards.config, std::move(packed), ranks, options);
}

}  // namespace bathys::model
