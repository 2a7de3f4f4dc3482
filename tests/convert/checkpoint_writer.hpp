// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/tensor_table.hpp"

#include <cstdint>
#include <map>
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

// The nano model written into a folder as a checkpoint of two files without an index, whose payload can be changed.
class NanoCheckpoint {
 public:
  explicit NanoCheckpoint(std::string folder);
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Writes it anew with one bit of this byte of a tensor changed: other weights under the same headers.
  void flip(const std::string& tensor, std::size_t byte);

 private:
  std::string folder_;
  std::vector<LooseTensor> tensors_;
};

// Name and content of every file of a folder; and whether two folders hold the same.
std::map<std::string, std::string> contents(const std::string& folder);
void expect_same_folder(const std::string& a, const std::string& b);

// The nano model's config with Engram tables of another size (inference form).
std::string nano_with_tables(std::int64_t engram_vocab_size, int engram_head_dim);

// A checkpoint of any config with payload from a counter: scales are 2^-7 .. 2^0, all other bytes arbitrary.
// config_json goes to config.json, the tokenizer is copied from `tokenizer_of`.  Tensors of at least `hole_bytes` are
// holes: zeros that take no space.
void write_random_checkpoint(const std::string& folder, const std::string& config_json, const std::string& tokenizer_of,
                             std::int64_t hole_bytes = INT64_MAX);

}  // namespace bathys::test
