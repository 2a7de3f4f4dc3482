// SPDX-License-Identifier: Apache-2.0
#include "weights/shard_model.hpp"

#include "parallel/agree.hpp"

#include <cstddef>
#include <cstdint>
#include <utility>

namespace bathys::weights {
namespace {

ShardModel interpret(std::string folder, io::ShardIndex index) {
  ShardModel model;
  model.folder = std::move(folder);
  model.index = std::move(index);
  model.config = config::read_model_config(model.index.config_json, model.folder + "/index.h5: config.json");
  model.table = catalog::dataset_table(model.config);
  std::vector<io::ShardDataset> expected;
  expected.reserve(model.table.size());
  for (const catalog::DatasetSpec& spec : model.table) {
    expected.push_back({spec.name,
                        spec.file,
                        std::string(catalog::safetensors_dtype(spec.dtype)),
                        spec.shape,
                        0,
                        static_cast<std::uint64_t>(spec.bytes()),
                        {}});
  }
  io::require_datasets(model.index, expected, model.folder);
  return model;
}

}  // namespace

ShardModel open_shards(parallel::Collectives& world, const std::string& folder) {
  std::vector<std::byte> bytes = parallel::agree(
      world, [&] { return world.rank() == 0 ? io::read_shard_index(folder).to_bytes() : std::vector<std::byte>(); });
  auto size = static_cast<std::int64_t>(bytes.size());
  world.broadcast_host(&size, sizeof size, 0);
  bytes.resize(static_cast<std::size_t>(size));
  world.broadcast_host(bytes.data(), size, 0);
  return parallel::agree(world, [&] { return interpret(folder, io::ShardIndex::from_bytes(bytes)); });
}

}  // namespace bathys::weights
