// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::catalog {

// Element types of a checkpoint.  i8 is two E2M1 codes to a byte, the even input in the low nibble.
enum class Dtype { i8, f8_e4m3, f8_e8m0, bf16, f32 };

[[nodiscard]] int element_bytes(Dtype dtype);
// The dtype's name in a safetensors header: "I8", "F8_E4M3", "F8_E8M0", "BF16", "F32"; and back, nullopt for any other
// name.
[[nodiscard]] std::string_view safetensors_dtype(Dtype dtype);
[[nodiscard]] std::optional<Dtype> dtype_from_safetensors(std::string_view name);

// Which part of the model a tensor belongs to; decides its shard file and its line in reports of sizes.
enum class Part { global, layer, engram, draft, vision };
[[nodiscard]] std::string_view part_name(Part part);

// How the ranks of one model copy hold a tensor.
//   replicated  every rank has all of it
//   rows        contiguous blocks along axis 0, in whole units (heads, output groups, vocabulary rows)
//   columns     contiguous blocks along axis 1, in whole units (output groups)
//   experts     whole experts, contiguous balanced blocks
//   table_rows  rows of an Engram table, contiguous balanced blocks
// rows and columns are cut over the tensor ranks of a group; experts and table_rows over all ranks of a replica.
enum class ShardRule { replicated, rows, columns, experts, table_rows };
[[nodiscard]] std::string_view shard_rule_name(ShardRule rule);

// One tensor of a released checkpoint.
struct TensorSpec {
  std::string name;                 // "layers.3.attn.wq_a.weight"
  std::vector<std::int64_t> shape;  // as stored: an FP4 matrix of [N, K] is [N, K/2] of i8
  Dtype dtype = Dtype::bf16;
  Part part = Part::global;
  int layer = -1;     // backbone layer, or n_layers + stage for a draft stage; -1 outside layers
  int expert = -1;    // routed expert, or -1
  int file = 0;       // number of the released file it is in, from 0 (released_file_name)
  std::string scale;  // name of the tensor with its E8M0 scales; empty where it has none
  // Logical rows and columns that share one scale: {32, 32} FP8 linear, {1, 32} FP4 and Engram table, {0, 0} none.
  std::array<int, 2> block = {0, 0};
  ShardRule rule = ShardRule::replicated;
  std::int64_t units =
      1;  // how many indivisible units the cut axis has (heads, output groups, rows); for experts their number
  bool equal_shares = false;  // every rank must get the same number of units (heads and output groups)

  [[nodiscard]] std::int64_t elements() const;  // stored elements
  [[nodiscard]] std::int64_t bytes() const;
  [[nodiscard]] std::vector<std::int64_t> logical_shape() const;  // `shape` with the FP4 packing undone
};

// Every tensor of the checkpoint that `config` describes, by released file, a scale right before its weight.  This is
// the one place where names, shapes and types are written down; a checkpoint has exactly these tensors. What the config
// decides: dtype "bf16" has bf16 linears without scales, routed experts follow expert_dtype, Engram tables are always
// E4M3 with one E8M0 scale per row and 32 columns; without a vision tower there is no vision.*, aligner.*, image_* and
// gate.bias_vl.
[[nodiscard]] std::vector<TensorSpec> tensor_table(const config::ModelConfig& config);

// The file layout of the release: vision, embedding, one file a layer, norm with head, one a draft stage, one an Engram
// layer.
[[nodiscard]] int released_file_count(const config::ModelConfig& config);
// "model-00003-of-00048.safetensors" for file 2 of 48.
[[nodiscard]] std::string released_file_name(int file, int count);

}  // namespace bathys::catalog
