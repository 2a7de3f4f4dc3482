// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "io/shard_index.hpp"
#include "parallel/collectives.hpp"

#include <string>
#include <vector>

namespace bathys::weights {

// A folder of shards as every rank knows it: index, config and tensor table; no payload yet.
struct ShardModel {
  std::string folder;
  io::ShardIndex index;
  config::ModelConfig config;
  std::vector<catalog::DatasetSpec> table;  // entry i describes index.datasets[i]
};

// Reads the index on rank 0 and shares it.  Collective over `world`.
//   throws AgreedError(bad_input) on all ranks when the folder holds no finished conversion or its index contradicts
//   its config
ShardModel open_shards(parallel::Collectives& world, const std::string& folder);

}  // namespace bathys::weights
