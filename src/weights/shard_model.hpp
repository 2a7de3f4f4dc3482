// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "catalog/synthetic.hpp"
#include "config/model_config.hpp"
#include "io/shard_index.hpp"
#include "parallel/collectives.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bathys::weights {

// A folder of shards as every rank knows it: index, config and tensor table; no payload yet.  Or a synthetic model,
// whose payload is made where it is wanted and which has no files.
struct ShardModel {
  std::string folder;
  io::ShardIndex index;
  config::ModelConfig config;
  std::vector<catalog::DatasetSpec> table;  // entry i describes index.datasets[i]
  std::shared_ptr<const catalog::SyntheticModel> synthetic;
};

// Reads the index on rank 0 and shares it.  Collective over `world`.
//   throws AgreedError(bad_input) on all ranks when the folder holds no finished conversion or its index contradicts
//   its config
ShardModel open_shards(parallel::Collectives& world, const std::string& folder);

// A synthetic model as if its shards lay in a folder called `name`: `index` with all but the datasets.
ShardModel open_synthetic(std::string name, io::ShardIndex index, std::shared_ptr<const catalog::SyntheticModel> model);

// Fills `out` from byte `offset` of a dataset (position in the table) of a synthetic model.
void read_synthetic(const ShardModel& model, std::size_t dataset, std::uint64_t offset, std::span<std::byte> out);

}  // namespace bathys::weights
