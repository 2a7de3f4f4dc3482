// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "io/checkpoint.hpp"
#include "io/shard_index.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::convert {

// The name a tensor has in the release, from any spelling the official converter accepts: a leading "model." goes; the
// name parts self_attn, mlp (but not in the vision tower), weight_scale_inv and e_score_correction_bias become attn,
// ffn, scale and bias.  Nothing for a draft stage's own embed.weight and head.weight, which are copies of the
// backbone's and dropped.
std::optional<std::string> canonical_tensor_name(std::string_view name);

// A checkpoint folder in the released layout, matched against the tensor table: every tensor of the table found once,
// with its dtype and shape, and none besides.  Holds headers and small files, no weights.
struct SourceModel {
  // Reads config.json and tokenizer.json, then the headers.
  //   throws Error(bad_input) for files and tensors (by name), Error(usage) for a config that cannot be
  explicit SourceModel(const std::string& folder);

  config::ModelConfig config;
  std::vector<catalog::DatasetSpec> table;
  // What index.h5 will say, as far as it is known before the shards exist: all but datasets and file sizes.
  io::ShardIndex index;
  io::Checkpoint checkpoint;
  std::vector<std::vector<io::TensorPlace>> places;  // of dataset i: one place per member tensor, in order

 private:
  struct Texts;
  SourceModel(const std::string& folder, Texts texts);
  void match_tensors();
  void set_identity();
};

// The bytes of one dataset of the table, read from the member tensors' places as if they lay one after another.
class DatasetSource {
 public:
  // `dataset` is the position in source.table; source must outlive this.
  DatasetSource(const SourceModel& source, std::size_t dataset);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Fills `out` from byte `offset` of the dataset.
  void read(std::uint64_t offset, std::span<std::byte> out) const;

 private:
  const std::vector<io::TensorPlace>* places_;
  std::uint64_t member_bytes_;
  std::uint64_t bytes_;
};

}  // namespace bathys::convert
