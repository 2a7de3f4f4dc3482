// SPDX-License-Identifier: Apache-2.0
#include "convert/shard_writer.hpp"

#include "convert/scale_rules.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "io/shard_file.hpp"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <system_error>
#include <unordered_map>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace bathys::convert {
namespace {

// Large datasets start at file-system blocks and stripes; small ones at cache lines.
constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 20;
constexpr io::h5::Alignment kSmall{1, 64};
constexpr io::h5::Alignment kLarge{kLargeBytes, std::uint64_t{4} << 20};

std::string checksum_name(const std::string& dataset) { return std::string(io::kChecksumGroup) + "/" + dataset; }

std::vector<std::size_t> datasets_of(const SourceModel& source, const std::string& file) {
  std::vector<std::size_t> datasets;
  for (std::size_t i = 0; i < source.table.size(); ++i) {
    if (source.table[i].file == file) datasets.push_back(i);
  }
  return datasets;
}

// What a person needs to read the codes without this program.
void create_dataset(io::h5::File& file, const catalog::DatasetSpec& spec) {
  const std::string dtype(catalog::safetensors_dtype(spec.dtype));
  file.create_dataset(spec.name, io::stored_type(dtype), spec.shape);
  file.set_attribute(spec.name, "dtype", dtype);
  std::vector<std::int64_t> logical = spec.shape;
  if (spec.dtype == catalog::Dtype::i8) {
    logical.back() *= 2;
    file.set_attribute(spec.name, "packing", "two E2M1 codes a byte, even column in the low nibble");
  }
  file.set_attribute(spec.name, "logical_shape", logical);
  if (!spec.scale.empty()) {
    file.set_attribute(spec.name, "scale", spec.scale);
    file.set_attribute(spec.name, "block", {spec.block[0], spec.block[1]});
  }
}

// All datasets of one size class, with the alignment that goes with it (HDF5 has one per open file).
void create_datasets(io::h5::File& file, const SourceModel& source, const std::vector<std::size_t>& datasets,
                     bool large) {
  for (const std::size_t i : datasets) {
    const bool is_large = static_cast<std::uint64_t>(source.table[i].bytes()) >= kLargeBytes;
    if (is_large == large) create_dataset(file, source.table[i]);
  }
}

// The empty shard: structure, attributes and space for everything.
void create_structure(const SourceModel& source, const std::string& path, const std::vector<std::size_t>& datasets) {
  io::h5::File file = io::h5::File::create(path, kSmall);
  file.set_attribute("/", "format", io::kShardFormat);
  file.set_attribute("/", "format_version", std::vector<std::int64_t>{io::kShardFormatVersion});
  file.set_attribute("/", "model_id", source.index.model_id);
  file.set_attribute("/", "piece_bytes", std::vector<std::int64_t>{static_cast<std::int64_t>(io::kPieceBytes)});
  file.create_group(std::string(io::kChecksumGroup));
  for (const std::size_t i : datasets) {
    const auto pieces = io::piece_count(static_cast<std::uint64_t>(source.table[i].bytes()));
    file.create_dataset(checksum_name(source.table[i].name), io::h5::Type::u8,
                        {static_cast<std::int64_t>(pieces), static_cast<std::int64_t>(io::kHashBytes)});
  }
  create_datasets(file, source, datasets, false);
  file.close();
  file = io::h5::File::open(path, io::h5::Mode::modify, kLarge);
  create_datasets(file, source, datasets, true);
  file.close();
}

void refuse_nan(const SourceModel& source, std::size_t dataset, std::uint64_t at, std::string_view code) {
  const auto member = static_cast<std::size_t>(at / static_cast<std::uint64_t>(source.table[dataset].member_bytes()));
  const io::TensorPlace& place = source.places[dataset][member];
  const std::uint64_t within = at % static_cast<std::uint64_t>(source.table[dataset].member_bytes());
  const auto columns = static_cast<std::uint64_t>(place.tensor->shape.back());
  fail(ExitCode::bad_input, "{}: tensor {} has the NaN {} at [{}, {}]", place.file->path(), place.tensor->name, code,
       within / columns, within % columns);
}

bool has_all_datasets(const io::h5::File& shard, const SourceModel& source, const std::vector<std::size_t>& datasets) {
  for (const std::size_t i : datasets) {
    const io::ShardDataset wanted = describe(source.table[i]);
    const io::h5::DatasetInfo found = shard.info(wanted.name);
    const io::h5::DatasetInfo sums = shard.info(checksum_name(wanted.name));
    const bool same = found.shape == wanted.shape && found.type == io::stored_type(wanted.dtype);
    if (!same || !found.offset || !sums.offset) return false;
  }
  return true;
}

// Payload goes through plain writes at the offsets that HDF5 gave.
class PayloadWriter {
 public:
  PayloadWriter(const SourceModel& source, std::string path, const io::Buffer& buffer, const Progress& progress)
      : source_(source),
        path_(std::move(path)),
        structure_(io::h5::File::open(path_, io::h5::Mode::read)),
        fd_(::open(path_.c_str(), O_WRONLY | O_CLOEXEC)),
        buffer_(buffer),
        progress_(progress) {
    if (!fd_.open()) io::fail_write(errno, path_, "written");
  }

  void write(std::size_t dataset) {
    check_linear_scales(source_, dataset);
    const catalog::DatasetSpec& spec = source_.table[dataset];
    const DatasetSource input(source_, dataset);
    const std::uint64_t base = offset_of(spec.name);
    std::vector<std::byte> hashes(static_cast<std::size_t>(io::piece_count(input.bytes()) * io::kHashBytes));
    for (std::uint64_t at = 0, piece = 0; at < input.bytes(); at += io::kPieceBytes, ++piece) {
      const auto bytes = buffer_.first(static_cast<std::size_t>(std::min(io::kPieceBytes, input.bytes() - at)));
      input.read(at, bytes);
      if (spec.dtype == catalog::Dtype::f8_e8m0) {
        const std::ptrdiff_t nan = find_nan_scale(bytes.data(), bytes.size());
        if (nan >= 0) refuse_nan(source_, dataset, at + static_cast<std::uint64_t>(nan), "scale code 255");
      }
      if (spec.dtype == catalog::Dtype::f8_e4m3) {
        const std::ptrdiff_t nan = find_nan_code(bytes.data(), bytes.size());
        if (nan >= 0) refuse_nan(source_, dataset, at + static_cast<std::uint64_t>(nan), "weight code 127 or 255");
      }
      io::store_hash(io::xxh3_128(bytes), std::span(hashes).subspan(piece * io::kHashBytes).first<io::kHashBytes>());
      io::write_all_at(fd_.get(), base + at, bytes, path_);
      progress_(bytes.size());
    }
    io::write_all_at(fd_.get(), offset_of(checksum_name(spec.name)), hashes, path_);
  }

  void finish() {
    if (const int error = fd_.close()) io::fail_write(error, path_, "written");
  }

 private:
  std::uint64_t offset_of(const std::string& name) const {
    const auto offset = structure_.info(name).offset;
    require(offset.has_value(), ExitCode::internal, "{}: HDF5 gave {} no space", path_, name);
    return *offset;
  }

  const SourceModel& source_;
  std::string path_;
  io::h5::File structure_;
  io::Descriptor fd_;
  const io::Buffer& buffer_;
  const Progress& progress_;
};

}  // namespace

io::ShardDataset describe(const catalog::DatasetSpec& spec) {
  io::ShardDataset dataset;
  dataset.name = spec.name;
  dataset.file = spec.file;
  dataset.dtype = catalog::safetensors_dtype(spec.dtype);
  dataset.shape = spec.shape;
  dataset.bytes = static_cast<std::uint64_t>(spec.bytes());
  return dataset;
}

void write_shard(const SourceModel& source, const std::string& folder, const std::string& file,
                 const io::Buffer& buffer, const Progress& progress) {
  const std::string path = folder + "/" + file;
  const std::string partial = io::partial_name(path);
  const std::vector<std::size_t> datasets = datasets_of(source, file);
  try {
    create_structure(source, partial, datasets);
    PayloadWriter writer(source, partial, buffer, progress);
    for (const std::size_t dataset : datasets) writer.write(dataset);
    writer.finish();
    io::publish(partial, path);
  } catch (...) {
    ::unlink(partial.c_str());
    throw;
  }
}

bool is_complete_shard(const SourceModel& source, const std::string& folder, const std::string& file) {
  const std::string path = folder + "/" + file;
  std::error_code error;
  if (!std::filesystem::exists(path, error)) return false;
  std::string model;
  bool complete = false;
  try {
    const io::h5::File shard = io::h5::File::open(path, io::h5::Mode::read);
    model = shard.text_attribute("/", "model_id").value_or("");
    complete = has_all_datasets(shard, source, datasets_of(source, file));
  } catch (const Error& cause) {
    log::warn("convert", "file={} note=\"written anew\" cause=\"{}\"", path, cause.what());
  }
  require(model.empty() || model == source.index.model_id, ExitCode::usage,
          "{}: belongs to another model ({}); choose another folder for this one", path, model);
  return complete && !model.empty();
}

void collect_shards(const SourceModel& source, const std::string& folder, io::ShardIndex& index) {
  std::unordered_map<std::string, std::unique_ptr<io::h5::File>> files;
  for (const catalog::DatasetSpec& spec : source.table) {
    const std::string path = folder + "/" + spec.file;
    auto& file = files[spec.file];
    if (!file) {
      file = std::make_unique<io::h5::File>(io::h5::File::open(path, io::h5::Mode::read));
      index.file_bytes[spec.file] = io::ReadFile(path).size();
    }
    io::ShardDataset dataset = describe(spec);
    dataset.offset = file->info(spec.name).offset.value_or(0);
    dataset.pieces_xxh3 = io::xxh3_128(file->read(checksum_name(spec.name), io::kPieceBytes)).hex();
    index.datasets.push_back(std::move(dataset));
  }
}

}  // namespace bathys::convert
