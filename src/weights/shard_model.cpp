// SPDX-License-Identifier: Apache-2.0
#include "weights/shard_model.hpp"

#include "parallel/agree.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace bathys::weights {
namespace {

std::vector<io::ShardDataset> describe(const std::vector<catalog::DatasetSpec>& table) {
  std::vector<io::ShardDataset> datasets;
  datasets.reserve(table.size());
  for (const catalog::DatasetSpec& spec : table) {
    datasets.push_back({spec.name,
                        spec.file,
                        std::string(catalog::safetensors_dtype(spec.dtype)),
                        spec.shape,
                        0,
                        static_cast<std::uint64_t>(spec.bytes()),
                        {}});
  }
  return datasets;
}

ShardModel interpret(std::string folder, io::ShardIndex index) {
  ShardModel model;
  model.folder = std::move(folder);
  model.index = std::move(index);
  model.config = config::read_model_config(model.index.config_json, model.folder + "/index.h5: config.json");
  model.table = catalog::dataset_table(model.config);
  io::require_datasets(model.index, describe(model.table), model.folder);
  return model;
}

}  // namespace

ShardModel open_synthetic(std::string name, io::ShardIndex index,
                          std::shared_ptr<const catalog::SyntheticModel> model) {
  ShardModel opened;
  opened.folder = std::move(name);
  opened.index = std::move(index);
  opened.config = config::read_model_config(opened.index.config_json, opened.folder);
  opened.table = catalog::dataset_table(opened.config);
  opened.index.datasets = describe(opened.table);
  opened.synthetic = std::move(model);
  return opened;
}

void read_synthetic(const ShardModel& model, std::size_t dataset, std::uint64_t offset, std::span<std::byte> out) {
  const catalog::DatasetSpec& spec = model.table[dataset];
  const auto member_bytes = static_cast<std::uint64_t>(spec.member_bytes());
  while (!out.empty()) {
    const std::uint64_t within = offset % member_bytes;
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(out.size(), member_bytes - within));
    model.synthetic->read(spec.tensors[static_cast<std::size_t>(offset / member_bytes)], within, out.first(count));
    out = out.subspan(count);
    offset += count;
  }
}

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
