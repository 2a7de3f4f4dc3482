// SPDX-License-Identifier: Apache-2.0
#include "convert/shard_writer.hpp"

#include "convert/scale_rules.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "io/shard_file.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <filesystem>
#include <memory>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace bathys::convert {
namespace {

// Large datasets start at file-system blocks and stripes; small ones at cache lines.
constexpr std::uint64_t kLargeBytes = std::uint64_t{1} << 20;
constexpr std::size_t kCacheBytes = std::size_t{256} << 10;
constexpr std::size_t kSlots = 3;  // pieces in memory: one being written, two being read
constexpr const char* kMarkSuffix = ".mark";
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

void refuse_nan_codes(const SourceModel& source, std::size_t dataset, std::uint64_t at,
                      std::span<const std::byte> bytes) {
  std::ptrdiff_t nan = -1;
  std::string_view code;
  if (source.table[dataset].dtype == catalog::Dtype::f8_e8m0) {
    nan = find_nan_scale(bytes.data(), bytes.size());
    code = "scale code 255";
  } else if (source.table[dataset].dtype == catalog::Dtype::f8_e4m3) {
    nan = find_nan_code(bytes.data(), bytes.size());
    code = "weight code 127 or 255";
  }
  if (nan >= 0) refuse_nan(source, dataset, at + static_cast<std::uint64_t>(nan), code);
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

ShardWriter::ShardWriter(const SourceModel& source, const std::string& folder, const std::string& file,
                         const ShardWriteOptions& options)
    : source_(source),
      path_(folder + "/" + file),
      partial_(io::partial_name(path_)),
      mark_path_(partial_ + kMarkSuffix),
      options_(options),
      datasets_(datasets_of(source, file)) {
  list_pieces();
  try {
    open();
  } catch (...) {
    leave();
    throw;
  }
  std::vector<Slot> slots(kSlots);
  for (Slot& slot : slots) slot.buffer = io::Buffer(io::kPieceBytes);
  ahead_.emplace(
      pieces_.size() - next_, std::move(slots),
      [this, first = next_](std::size_t job, Slot& slot) { fill(first + job, slot); },
      [this, first = next_](std::size_t job) { will_need(first + job); });
}

void ShardWriter::list_pieces() {
  for (std::size_t i = 0; i < datasets_.size(); ++i) {
    const auto bytes = static_cast<std::uint64_t>(source_.table[datasets_[i]].bytes());
    for (std::uint64_t piece = 0; piece < io::piece_count(bytes); ++piece) pieces_.push_back({i, piece});
  }
}

void ShardWriter::open() {
  next_ = marked_pieces();
  if (next_ == 0) {
    ::unlink(mark_path_.c_str());  // before the data it speaks of
    create_structure(source_, partial_, datasets_);
  }
  for (std::size_t i = 0; i < next_; ++i) {
    const auto bytes = static_cast<std::uint64_t>(source_.table[datasets_[pieces_[i].dataset]].bytes());
    resumed_bytes_ += std::min(io::kPieceBytes, bytes - pieces_[i].number * io::kPieceBytes);
  }
  read_places();
  // Payload goes through plain writes at the offsets that HDF5 gave.
  fd_ = io::Descriptor(::open(partial_.c_str(), O_WRONLY | O_CLOEXEC));
  if (!fd_.open()) io::fail_write(errno, partial_, "written");
}

// How many pieces of a file that was begun are there for good; 0 unless its mark and its structure say so.
std::size_t ShardWriter::marked_pieces() const {
  std::error_code error;
  if (!std::filesystem::exists(mark_path_, error) || !std::filesystem::exists(partial_, error)) return 0;
  try {
    Json json;
    if (try_parse_json(io::read_small_file(mark_path_), json)) return 0;
    JsonObject mark(json, mark_path_, ExitCode::bad_input);
    if (mark.string("source_state") != io::sha256_hex(options_.source_state)) return 0;
    const auto pieces = static_cast<std::size_t>(mark.integer("pieces"));
    const io::h5::File shard = io::h5::File::open(partial_, io::h5::Mode::read);
    const bool same = shard.text_attribute("/", "model_id") == source_.index.model_id &&
                      has_all_datasets(shard, source_, datasets_) && pieces <= pieces_.size();
    return same ? pieces : 0;
  } catch (const Error& cause) {
    log::warn("convert", "file={} note=\"written anew\" cause=\"{}\"", partial_, cause.what());
    return 0;
  }
}

void ShardWriter::read_places() {
  const io::h5::File structure = io::h5::File::open(partial_, io::h5::Mode::read);
  const auto offset_of = [&](const std::string& name) {
    const auto offset = structure.info(name).offset;
    require(offset.has_value(), ExitCode::internal, "{}: HDF5 gave {} no space", partial_, name);
    return *offset;
  };
  for (const std::size_t dataset : datasets_) {
    const std::string& name = source_.table[dataset].name;
    places_.push_back({offset_of(name), offset_of(checksum_name(name))});
  }
}

void ShardWriter::will_need(std::size_t piece) const {
  const DatasetSource input(source_, datasets_[pieces_[piece].dataset]);
  const std::uint64_t at = pieces_[piece].number * io::kPieceBytes;
  input.will_need(at, std::min(io::kPieceBytes, input.bytes() - at));
}

void ShardWriter::fill(std::size_t number, Slot& slot) const {
  const Piece& piece = pieces_[number];
  const std::size_t dataset = datasets_[piece.dataset];
  if (piece.number == 0) check_linear_scales(source_, dataset);
  const DatasetSource input(source_, dataset);
  const std::uint64_t at = piece.number * io::kPieceBytes;
  slot.bytes = static_cast<std::size_t>(std::min(io::kPieceBytes, input.bytes() - at));
  const auto bytes = slot.buffer.first(slot.bytes);
  // Checked and hashed in bits that stay in a core's cache from one to the next.
  io::PieceHash hash;
  for (std::size_t done = 0; done < bytes.size(); done += kCacheBytes) {
    const auto bit = bytes.subspan(done, std::min(kCacheBytes, bytes.size() - done));
    input.read(at + done, bit);
    refuse_nan_codes(source_, dataset, at + done, bit);
    hash.update(bit);
  }
  slot.hash = hash.value();
}

std::optional<std::uint64_t> ShardWriter::step() {
  if (next_ == pieces_.size()) {
    finish();
    return std::nullopt;
  }
  const Piece& piece = pieces_[next_];
  const Slot& slot = ahead_->take();
  ahead_->release();
  const Place& place = places_[piece.dataset];
  const std::uint64_t at = place.data + piece.number * io::kPieceBytes;
  io::write_all_at(fd_.get(), at, slot.buffer.first(slot.bytes), partial_);
  io::start_writing_out(fd_.get(), at, slot.bytes);
  std::array<std::byte, io::kHashBytes> hash{};
  io::store_hash(slot.hash, hash);
  io::write_all_at(fd_.get(), place.checksums + piece.number * io::kHashBytes, hash, partial_);
  ++next_;
  unmarked_bytes_ += slot.bytes;
  if (unmarked_bytes_ >= options_.mark_bytes && next_ < pieces_.size()) mark();
  return slot.bytes;
}

void ShardWriter::mark() {
  io::sync_data(fd_.get(), partial_);
  Json json;
  json["source_state"] = io::sha256_hex(options_.source_state);
  json["pieces"] = next_;
  io::write_file(mark_path_, json.dump() + "\n");
  unmarked_bytes_ = 0;
}

void ShardWriter::suspend() {
  if (unmarked_bytes_ > 0) mark();
}

void ShardWriter::finish() {
  if (const int error = fd_.close()) io::fail_write(error, partial_, "written");
  io::publish(partial_, path_);
  ::unlink(mark_path_.c_str());
}

void ShardWriter::discard() noexcept {
  ::unlink(mark_path_.c_str());
  ::unlink(partial_.c_str());
}

void ShardWriter::leave() noexcept {
  if (::access(mark_path_.c_str(), F_OK) != 0) discard();
}

std::vector<std::string> leftover_names(const std::string& path) {
  const std::string partial = io::partial_name(path);
  return {partial, partial + kMarkSuffix, io::partial_name(partial + kMarkSuffix)};
}

void create_empty_shard(const SourceModel& source, const std::string& folder, const std::string& file) {
  create_structure(source, folder + "/" + file, datasets_of(source, file));
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
