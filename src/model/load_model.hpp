// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.hpp"
#include "weights/load.hpp"

#include <memory>

namespace bathys::model {

// Loads the text model of a shard folder onto the ranks of `ranks`, cut over all of them, and packs it.  Collective.
//   throws AgreedError: bad_input (shards), usage (a number of ranks that cannot share the model)
//   report: of the loading, when not null
std::unique_ptr<Model> load_model(const weights::ShardModel& shards, parallel::Collectives& ranks,
                                  const ModelOptions& options, const weights::LoadOptions& load_options = {},
                                  weights::LoadReport* report = nullptr);

}  // namespace bathys::model
