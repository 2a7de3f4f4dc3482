// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"
#include "io/shard_index.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

namespace bathys::io {

// One shard file, open for plain reads.  On opening HDF5 is asked once whether the file is what the index says: format,
// model, every dataset's type, shape, position, that its data were written, and that nothing else is in it; later reads
// need no HDF5.
//   with_checksums: piece checksums are loaded (and checked against the index), and read_piece verifies them
//   throws Error(bad_input) naming the file and the dataset
class ShardFile {
 public:
  ShardFile(const ShardIndex& index, const std::string& folder, const std::string& file, bool with_checksums);

  [[nodiscard]] const ReadFile& data() const { return data_; }
  // Reads piece `piece` (from 0) of `dataset`, an entry of the index that lies in this file, into `out`, which must
  // have the piece's size.
  //   returns the seconds of the read calls alone, without checksums
  //   throws Error(bad_input) naming dataset and byte range when the checksum does not match
  double read_piece(const ShardDataset& dataset, std::uint64_t piece, std::span<std::byte> out) const;
  // Tells the kernel that a piece will be read soon.  Advice only.
  void will_need(const ShardDataset& dataset, std::uint64_t piece) const;
  // Size of a piece: kPieceBytes, or less for the last.
  static std::size_t piece_bytes(const ShardDataset& dataset, std::uint64_t piece);

 private:
  void check_dataset(const h5::File& file, const ShardDataset& dataset);
  void load_checksums(const h5::File& file, const ShardDataset& dataset);

  std::string path_;
  ReadFile data_;
  bool with_checksums_;
  std::unordered_map<std::string, std::vector<Hash128>> checksums_;
};

// A piece's checksum as stored: 16 bytes, most significant first, so that they read as the usual hexadecimal digest.
void store_hash(const Hash128& hash, std::span<std::byte, kHashBytes> out);
Hash128 load_hash(std::span<const std::byte, kHashBytes> bytes);

}  // namespace bathys::io
