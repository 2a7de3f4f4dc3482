// SPDX-License-Identifier: Apache-2.0
#include "io/shard_file.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "io/safetensors.hpp"

#include <algorithm>
#include <unordered_set>

namespace bathys::io {
namespace {

constexpr std::size_t kCacheBytes = std::size_t{256} << 10;

std::string checksum_name(const std::string& dataset) { return std::string(kChecksumGroup) + "/" + dataset; }

// HDF5's words for a truncated file are obscure; the index knows the size.
h5::File open_shard(const std::string& path, std::uint64_t found, std::uint64_t expected) {
  try {
    return h5::File::open(path, h5::Mode::read);
  } catch (const Error& error) {
    require(found >= expected, ExitCode::bad_input, "{}: has {} bytes, expected {}: the file is truncated", path, found,
            expected);
    throw;
  }
}

}  // namespace

void store_hash(const Hash128& hash, std::span<std::byte, kHashBytes> out) {
  for (std::size_t i = 0; i < 8; ++i) {
    out[i] = static_cast<std::byte>(hash.high >> (56 - 8 * i));
    out[8 + i] = static_cast<std::byte>(hash.low >> (56 - 8 * i));
  }
}

Hash128 load_hash(std::span<const std::byte, kHashBytes> bytes) {
  Hash128 hash;
  for (std::size_t i = 0; i < 8; ++i) {
    hash.high = hash.high << 8U | std::to_integer<std::uint64_t>(bytes[i]);
    hash.low = hash.low << 8U | std::to_integer<std::uint64_t>(bytes[8 + i]);
  }
  return hash;
}

ShardFile::ShardFile(const ShardIndex& index, const std::string& folder, const std::string& file,
                     bool with_checksums) try
    : path_(folder + "/" + file), data_(path_), with_checksums_(with_checksums) {
  const auto size = index.file_bytes.find(file);
  require(size != index.file_bytes.end(), ExitCode::bad_input, "{}: the index does not know this file", path_);
  const h5::File shard = open_shard(path_, data_.size(), size->second);
  const auto version = shard.integers_attribute("/", "format_version").value_or(std::vector<std::int64_t>{});
  require(
      shard.text_attribute("/", "format") == kShardFormat && version == std::vector<std::int64_t>{kShardFormatVersion},
      ExitCode::bad_input, "{}: is not a {} of version {}", path_, kShardFormat, kShardFormatVersion);
  const std::string model = shard.text_attribute("/", "model_id").value_or("none");
  require(model == index.model_id, ExitCode::bad_input, "{}: belongs to model {}, the index to {}", path_, model,
          index.model_id);
  std::unordered_set<std::string> known{std::string(kChecksumGroup)};
  for (const ShardDataset& dataset : index.datasets) {
    if (dataset.file != file) continue;
    check_dataset(shard, dataset);
    if (with_checksums_) load_checksums(shard, dataset);
    known.insert(dataset.name);
  }
  for (const std::string& name : shard.members("/")) {
    require(known.contains(name), ExitCode::bad_input, "{}: holds {}, which the index does not list", path_, name);
  }
  require(data_.size() == size->second, ExitCode::bad_input, "{}: has {} bytes, expected {}", path_, data_.size(),
          size->second);
} catch (const Error& cause) {  // whatever it is, one thing helps
  fail(cause.code(), "{}; rerun bathys convert", cause.what());
}

void ShardFile::check_dataset(const h5::File& file, const ShardDataset& dataset) {
  require(file.has(dataset.name), ExitCode::bad_input, "{}: dataset {} is missing", path_, dataset.name);
  const h5::DatasetInfo found = file.info(dataset.name);
  require(found.type == stored_type(dataset.dtype) && found.shape == dataset.shape && found.bytes == dataset.bytes,
          ExitCode::bad_input, "{}: {} has shape {} ({} bytes), expected {} of {} ({} bytes)", path_, dataset.name,
          shape_text(found.shape), found.bytes, shape_text(dataset.shape), dataset.dtype, dataset.bytes);
  require(found.offset || found.bytes == 0, ExitCode::bad_input, "{}: {} has no data: it was created but never written",
          path_, dataset.name);
  require(!found.offset || *found.offset == dataset.offset, ExitCode::bad_input,
          "{}: {} lies at byte {}, the index says {}: the file was changed", path_, dataset.name,
          found.offset.value_or(0), dataset.offset);
}

void ShardFile::load_checksums(const h5::File& file, const ShardDataset& dataset) {
  const std::string name = checksum_name(dataset.name);
  const std::uint64_t pieces = piece_count(dataset.bytes);
  const auto bytes = file.read(name, pieces * kHashBytes);
  require(bytes.size() == pieces * kHashBytes && xxh3_128(bytes).hex() == dataset.pieces_xxh3, ExitCode::bad_input,
          "{}: {} does not match the index: the file is damaged or of another conversion", path_, name);
  std::vector<Hash128> hashes;
  hashes.reserve(static_cast<std::size_t>(pieces));
  for (std::size_t at = 0; at < bytes.size(); at += kHashBytes) {
    hashes.push_back(load_hash(std::span(bytes).subspan(at).first<kHashBytes>()));
  }
  checksums_.emplace(dataset.name, std::move(hashes));
}

std::size_t ShardFile::piece_bytes(const ShardDataset& dataset, std::uint64_t piece) {
  return static_cast<std::size_t>(std::min(kPieceBytes, dataset.bytes - piece * kPieceBytes));
}

void ShardFile::will_need(const ShardDataset& dataset, std::uint64_t piece) const {
  data_.will_need(dataset.offset + piece * kPieceBytes, piece_bytes(dataset, piece));
}

double ShardFile::read_piece(const ShardDataset& dataset, std::uint64_t piece, std::span<std::byte> out) const {
  const std::uint64_t begin = piece * kPieceBytes;
  double seconds = 0;
  const auto read = [&](std::uint64_t at, std::span<std::byte> bytes) {
    const Timer timer;
    data_.read_at(dataset.offset + at, bytes);
    seconds += timer.seconds();
  };
  // Several threads read one file at different places, which the kernel's own guess of what comes next does not follow.
  will_need(dataset, piece);
  if (!with_checksums_) {
    read(begin, out);
    return seconds;
  }
  const Hash128 expected = checksums_.at(dataset.name).at(static_cast<std::size_t>(piece));
  // Hashed while it lies in a core's cache.
  PieceHash hash;
  for (std::size_t done = 0; done < out.size(); done += kCacheBytes) {
    const auto bit = out.subspan(done, std::min(kCacheBytes, out.size() - done));
    read(begin + done, bit);
    hash.update(bit);
  }
  const Hash128 found = hash.value();
  require(found == expected, ExitCode::bad_input,
          "{}: {}: bytes {} to {} of the dataset have XXH3 {}, expected {}: the file is damaged; rerun bathys convert",
          path_, dataset.name, begin, begin + out.size(), found.hex(), expected.hex());
  return seconds;
}

}  // namespace bathys::io
