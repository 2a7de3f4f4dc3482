// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.hpp"
#include "weights/load.hpp"

#include <memory>

namespace bathys::model {

// Loads the text model of a shard folder onto every replica of `grid`, cut as its layout says, and packs it.  `grid`,
// which was cut out of `world`, outlives the model.  Collective over the world.
//   throws AgreedError: bad_input (shards), usage (a number of ranks that cannot share the model)
//   report: of the loading, when not null
std::unique_ptr<Model> load_model(const weights::ShardModel& shards, parallel::Collectives& world,
                                  const parallel::RankGrid& grid, const ModelOptions& options,
                                  const weights::LoadOptions& load_options = {}, weights::LoadReport* report = nullptr);

}  // namespace bathys::model
