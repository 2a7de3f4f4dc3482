// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/shard_range.hpp"
#include "catalog/tensor_table.hpp"
#include "config/model_config.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

namespace bathys::catalog {

// One HDF5 dataset of the converted model: a tensor, or the same matrix of all routed experts of a layer, stacked so
// that a range of experts is one contiguous read.  The dataset's name in the root group of its file is the tensor's
// name, dots kept; a stack drops the expert's number: layers.3.ffn.experts.{e}.w1.weight, e = 0..E-1, are
// layers.3.ffn.experts.w1.weight [E, N, K/2].
struct DatasetSpec {
  std::string name;
  std::vector<std::int64_t> shape;  // as stored; a stack has the experts as axis 0
  Dtype dtype = Dtype::bf16;
  Part part = Part::global;
  int layer = -1;     // as TensorSpec
  std::string file;   // shard file: "global.h5", "layer_03.h5", "engram_01.h5", "draft_0.h5", "vision.h5"
  std::string scale;  // dataset with its scales, in the same file and earlier in the table; empty where none
  std::array<int, 2> block = {0, 0};
  ShardRule rule = ShardRule::replicated;
  std::int64_t units = 1;
  bool equal_shares = false;
  std::vector<std::string> tensors;  // member tensors, in order along axis 0; one where nothing is stacked

  [[nodiscard]] bool stacked() const { return tensors.size() > 1 || rule == ShardRule::experts; }
  [[nodiscard]] std::int64_t elements() const;
  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] std::int64_t member_bytes() const;  // of one member tensor
};

// The datasets of the converted model, file by file: global, layers, Engram layers, draft stages, vision.  A scale
// stands before its weight, because packing a weight needs its scales.
[[nodiscard]] std::vector<DatasetSpec> dataset_table(const config::ModelConfig& config);

// Position of each dataset (tensor) by name.
[[nodiscard]] std::unordered_map<std::string, std::size_t> index_by_name(const std::vector<DatasetSpec>& table);
[[nodiscard]] std::unordered_map<std::string, std::size_t> index_by_name(const std::vector<TensorSpec>& table);

// Where a rank stands in its replica: `tensor_*` within its group (attention, vocabulary), `replica_*` within all
// groups of the replica (experts, Engram tables).
struct RankPlace {
  int tensor_ranks = 1;
  int tensor_rank = 0;
  int replica_ranks = 1;
  int replica_rank = 0;
  // One group: the model is split over `ranks` ranks.
  static constexpr RankPlace one_group(int ranks, int rank) { return {ranks, rank, ranks, rank}; }
};

// The part of a dataset that a rank holds: stored elements begin..end along `axis`, all of the other axes.
struct Slice {
  int axis = 0;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t bytes = 0;
  [[nodiscard]] std::int64_t size() const { return end - begin; }
  bool operator==(const Slice&) const = default;
};

// The slice of `dataset` at `place`; empty (begin == end) where there are fewer units than ranks.
//   throws Error(ExitCode::usage) when units that must be shared equally (heads, output groups) do not divide by the
//   ranks
[[nodiscard]] Slice local_slice(const DatasetSpec& dataset, const RankPlace& place);

// Bytes that a rank holds, by part.  `experts` are the backbone's routed experts; the draft stages' are in `draft`.
struct RankBytes {
  std::int64_t global = 0;
  std::int64_t layer = 0;
  std::int64_t experts = 0;
  std::int64_t engram = 0;
  std::int64_t draft = 0;
  std::int64_t vision = 0;
  [[nodiscard]] std::int64_t total() const { return global + layer + experts + engram + draft + vision; }
};
[[nodiscard]] RankBytes rank_bytes(const std::vector<DatasetSpec>& table, const RankPlace& place);

// throws Error(ExitCode::usage) unless `tensor_ranks` divides o_groups: the number of ranks that can share the
// attention of a model
void require_tensor_ranks(const config::ModelConfig& config, int tensor_ranks);

}  // namespace bathys::catalog
