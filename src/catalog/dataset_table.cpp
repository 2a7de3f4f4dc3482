// SPDX-License-Identifier: Apache-2.0
#include "catalog/dataset_table.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace bathys::catalog {
namespace {

using config::ModelConfig;

// "layers.3.ffn.experts.17.w1.weight" -> "layers.3.ffn.experts.w1.weight"; other names unchanged.
std::string stack_name(const std::string& tensor, int expert) {
  if (expert < 0 || tensor.empty()) return tensor;
  const std::string part = fmt::format(".experts.{}.", expert);
  std::string name = tensor;
  name.replace(name.find(part), part.size(), ".experts.");
  return name;
}

int digits(int n) { return static_cast<int>(fmt::formatted_size("{}", n)); }

std::string shard_file(const ModelConfig& config, const TensorSpec& tensor) {
  const int layer_digits = std::max(2, digits(config.n_layers - 1));
  switch (tensor.part) {
    case Part::global:
      return "global.h5";
    case Part::layer:
      return fmt::format("layer_{:0{}}.h5", tensor.layer, layer_digits);
    case Part::engram:
      return fmt::format("engram_{:0{}}.h5", tensor.layer, layer_digits);
    case Part::draft:
      return fmt::format("draft_{:0{}}.h5", tensor.layer - config.n_layers, digits(config.n_mtp_layers - 1));
    case Part::vision:
      break;
  }
  return "vision.h5";
}

DatasetSpec make_dataset(const ModelConfig& config, const TensorSpec& tensor) {
  DatasetSpec dataset;
  dataset.name = stack_name(tensor.name, tensor.expert);
  dataset.shape = tensor.shape;
  if (tensor.expert >= 0) dataset.shape.insert(dataset.shape.begin(), tensor.units);
  dataset.dtype = tensor.dtype;
  dataset.part = tensor.part;
  dataset.layer = tensor.layer;
  dataset.file = shard_file(config, tensor);
  dataset.scale = stack_name(tensor.scale, tensor.expert);
  dataset.block = tensor.block;
  dataset.rule = tensor.rule;
  dataset.units = tensor.units;
  dataset.equal_shares = tensor.equal_shares;
  return dataset;
}

template <class Spec>
std::unordered_map<std::string, std::size_t> positions(const std::vector<Spec>& table) {
  std::unordered_map<std::string, std::size_t> index;
  index.reserve(table.size());
  for (std::size_t i = 0; i < table.size(); ++i) index.emplace(table[i].name, i);
  return index;
}

}  // namespace

std::int64_t DatasetSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t DatasetSpec::bytes() const { return elements() * element_bytes(dtype); }

std::int64_t DatasetSpec::member_bytes() const { return bytes() / static_cast<std::int64_t>(tensors.size()); }

std::vector<DatasetSpec> dataset_table(const ModelConfig& config) {
  std::vector<TensorSpec> tensors = tensor_table(config);
  // The release keeps embedding and head apart and vision first; shards go by part.  Within a part the order stays.
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorSpec& a, const TensorSpec& b) { return a.part < b.part; });
  std::vector<DatasetSpec> table;
  std::unordered_map<std::string, std::size_t> stacks;  // by name
  for (TensorSpec& tensor : tensors) {
    if (tensor.expert <= 0) {
      table.push_back(make_dataset(config, tensor));
      if (tensor.expert == 0) stacks.emplace(table.back().name, table.size() - 1);
      table.back().tensors.push_back(std::move(tensor.name));
    } else {
      table[stacks.at(stack_name(tensor.name, tensor.expert))].tensors.push_back(std::move(tensor.name));
    }
  }
  return table;
}

std::unordered_map<std::string, std::size_t> index_by_name(const std::vector<DatasetSpec>& table) {
  return positions(table);
}

std::unordered_map<std::string, std::size_t> index_by_name(const std::vector<TensorSpec>& table) {
  return positions(table);
}

Slice local_slice(const DatasetSpec& dataset, const RankPlace& place) {
  const bool whole_replica = dataset.rule == ShardRule::experts || dataset.rule == ShardRule::table_rows;
  const int ranks = whole_replica ? place.replica_ranks : place.tensor_ranks;
  const int rank = whole_replica ? place.replica_rank : place.tensor_rank;
  Slice slice;
  slice.axis = dataset.rule == ShardRule::columns ? 1 : 0;
  const std::int64_t extent = dataset.shape[static_cast<std::size_t>(slice.axis)];
  if (dataset.rule == ShardRule::replicated) {
    slice.end = extent;
  } else {
    require(!dataset.equal_shares || dataset.units % ranks == 0, ExitCode::usage,
            "{} has {} units that ranks share equally, which {} tensor ranks cannot; choose a divisor", dataset.name,
            dataset.units, ranks);
    const Range units = shard_range(dataset.units, ranks, rank);
    const std::int64_t per_unit = extent / dataset.units;
    slice.begin = units.begin * per_unit;
    slice.end = units.end * per_unit;
  }
  slice.bytes = dataset.bytes() / extent * slice.size();
  return slice;
}

RankBytes rank_bytes(const std::vector<DatasetSpec>& table, const RankPlace& place) {
  RankBytes sum;
  for (const DatasetSpec& dataset : table) {
    const std::int64_t bytes = local_slice(dataset, place).bytes;
    switch (dataset.part) {
      case Part::global:
        sum.global += bytes;
        break;
      case Part::layer:
        (dataset.rule == ShardRule::experts ? sum.experts : sum.layer) += bytes;
        break;
      case Part::engram:
        sum.engram += bytes;
        break;
      case Part::draft:
        sum.draft += bytes;
        break;
      case Part::vision:
        sum.vision += bytes;
        break;
    }
  }
  return sum;
}

void require_tensor_ranks(const ModelConfig& config, int tensor_ranks) {
  require(tensor_ranks >= 1 && config.o_groups % tensor_ranks == 0, ExitCode::usage,
          "{} tensor ranks cannot share {} output groups (o_groups) equally; choose a divisor of {}", tensor_ranks,
          config.o_groups, config.o_groups);
}

}  // namespace bathys::catalog
