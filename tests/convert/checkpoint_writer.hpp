// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/tensor_table.hpp"

#include <cstdint>
#include <string>
#include <vector>

namespace bathys::test {

inline const std::string kNano = std::string(BATHYS_TEST_DATA) + "/../inputs/models/nano";

// A tensor of a checkpoint in memory, to be changed before it is written.
struct LooseTensor {
  std::string name;
  std::string dtype;
  std::vector<std::int64_t> shape;
  std::string bytes;
};

// All tensors of a checkpoint folder, in name order.
std::vector<LooseTensor> read_loose(const std::string& folder);
LooseTensor& find(std::vector<LooseTensor>& tensors, const std::string& name);

// Writes tensors into `n_files` safetensors files, without an index, beside copies of the small files of
// `small_files_of`.
void write_checkpoint(const std::string& folder, const std::string& small_files_of,
                      const std::vector<LooseTensor>& tensors, int n_files = 2);

// The nano model's config with Engram tables of another size (inference form).
std::string nano_with_tables(std::int64_t engram_vocab_size, int engram_head_dim);

// A checkpoint of any config with payload from a counter: scales are 2^-7 .. 2^0, all other bytes arbitrary.
// config_json goes to config.json, the tokenizer is copied from `tokenizer_of`.  Tensors of at least `hole_bytes` are
// holes: zeros that take no space.
void write_random_checkpoint(const std::string& folder, const std::string& config_json, const std::string& tokenizer_of,
                             std::int64_t hole_bytes = INT64_MAX);

}  // namespace bathys::test
