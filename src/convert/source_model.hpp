// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "catalog/synthetic.hpp"
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

// What shards are made from.  Either a checkpoint folder in the released layout, matched against the tensor table:
// every tensor of the table found once, with its dtype and shape, and none besides; headers and small files are held,
// no weights.  Or a synthetic model, whose weights are made when they are read.
struct SourceModel {
  // Reads config.json and tokenizer.json, then the headers.
  //   throws Error(bad_input) for files and tensors (by name), Error(usage) for a config that cannot be
  explicit SourceModel(const std::string& folder);

  // The small files of a model, whole, and what messages call two of them; tokenizer_config may be empty.
  struct Texts {
    std::string config_name;
    std::string config;
    std::string tokenizer_name;
    std::string tokenizer;
    std::string tokenizer_config;
  };
  // A synthetic model with these files.
  //   throws as above for files that cannot be or do not belong together
  SourceModel(Texts texts, std::uint64_t seed);

  // Tensors of the checkpoint that the model takes.
  [[nodiscard]] std::int64_t n_tensors() const;

  config::ModelConfig config;
  std::vector<catalog::DatasetSpec> table;
  // What index.h5 will say, as far as it is known before the shards exist: all but datasets and file sizes.
  io::ShardIndex index;
  // One of the two.
  std::optional<io::Checkpoint> checkpoint;
  std::optional<catalog::SyntheticModel> synthetic;
  // Of dataset i of a checkpoint: one place per member tensor, in order.
  std::vector<std::vector<io::TensorPlace>> places;

 private:
  explicit SourceModel(Texts texts);
  void match_tensors();
  void set_identity();
};

// The bytes of one dataset of the table, as if its member tensors lay one after another.
class DatasetSource {
 public:
  // `dataset` is the position in source.table; source must outlive this.
  DatasetSource(const SourceModel& source, std::size_t dataset);
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }
  // Fills `out` from byte `offset` of the dataset.
  void read(std::uint64_t offset, std::span<std::byte> out) const;
  // Asks the kernel to fetch a range that is read soon.  The members of a stack lie apart in their file, so that the
  // kernel's own guess of what comes next fails and each would be waited for.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  void read_member(std::size_t member, std::uint64_t offset, std::span<std::byte> out) const;

  const SourceModel* source_;
  std::size_t dataset_;
  std::uint64_t member_bytes_;
  std::uint64_t bytes_;
};

}  // namespace bathys::convert
