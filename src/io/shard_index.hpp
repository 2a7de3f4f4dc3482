// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/hash.hpp"
#include "io/hdf5.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// The converted model on disk: shard files with the tensors, and index.h5, written last, which says what is where
// (docs/file_formats.md).
namespace bathys::io {

inline constexpr std::string_view kShardFormat = "bathys-shard";
inline constexpr std::string_view kIndexFormat = "bathys-index";
inline constexpr std::int64_t kShardFormatVersion = 1;
inline constexpr std::string_view kIndexFileName = "index.h5";
// Group of a shard file with one dataset of piece checksums per tensor dataset, of the same name.
inline constexpr std::string_view kChecksumGroup = "checksums";
// A dataset is checked in pieces of this many bytes from its start; the last one may be shorter.
inline constexpr std::uint64_t kPieceBytes = std::uint64_t{16} << 20;
inline constexpr std::uint64_t kHashBytes = 16;

// Number of pieces of a dataset.
constexpr std::uint64_t piece_count(std::uint64_t bytes) { return (bytes + kPieceBytes - 1) / kPieceBytes; }

// The HDF5 type in which codes of a safetensors dtype are stored: BF16 as 16-bit integers, F32 as floats, all others as
// bytes.
h5::Type stored_type(std::string_view dtype);

// One dataset of a shard file.
struct ShardDataset {
  std::string name;
  std::string file;
  std::string dtype;  // as in safetensors: "I8", "F8_E4M3", "F8_E8M0", "BF16", "F32"
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  // of the contiguous data in the file
  std::uint64_t bytes = 0;
  std::string pieces_xxh3;  // XXH3-128 of the dataset's piece checksums, which ties the contents to this index
  bool operator==(const ShardDataset&) const = default;
};

// A file that the model was converted from.
struct ShardSource {
  std::string file;
  std::uint64_t bytes = 0;
  std::string sha256;  // of the whole file; for a safetensors file of its header
  bool operator==(const ShardSource&) const = default;
};

struct ShardIndex {
  std::string model_id;  // SHA-256 over format and sources; every shard file carries it
  std::vector<ShardSource> sources;
  std::vector<ShardDataset> datasets;                         // in the order of the catalog's dataset table
  std::unordered_map<std::string, std::uint64_t> file_bytes;  // size of each shard file
  // The source's files, byte for byte; tokenizer_config_json may be empty.
  std::string config_json;
  std::string tokenizer_json;
  std::string tokenizer_config_json;
  std::vector<std::int32_t> compressed_token_map;  // [V], empty without Engram

  // Identity of the model's content, whatever files it came from: SHA-256 over the config and tokenizer texts and over
  // name, dtype, shape and piece checksums of every dataset.  The payload is not read: converting hashed it on its way.
  [[nodiscard]] std::string content_id() const;

  // The part that index.h5 holds as JSON: everything but the texts and the map.
  [[nodiscard]] std::string to_json() const;

  // All of it as one block of bytes, for a broadcast; and back.  throws Error(bad_input) for bytes that are not such a
  // block
  [[nodiscard]] std::vector<std::byte> to_bytes() const;
  static ShardIndex from_bytes(std::span<const std::byte> bytes);
};

// Checks that the index has exactly the datasets `expected` (of a tensor table), in that order: name, file, dtype,
// shape and size; their offsets and checksums are not compared.
//   throws Error(bad_input) naming the first that differs
void require_datasets(const ShardIndex& index, std::span<const ShardDataset> expected, const std::string& folder);

// Writes index.h5 of a shard folder atomically.
void write_shard_index(const std::string& folder, const ShardIndex& index);

// Reads and checks it (format, version, the SHA-256 of every part).
//   throws Error(bad_input) when there is none (an unfinished conversion) or it is damaged
ShardIndex read_shard_index(const std::string& folder);

}  // namespace bathys::io
