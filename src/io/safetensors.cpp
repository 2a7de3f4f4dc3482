// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.hpp"

#include "core/error.hpp"
#include "core/json_sax.hpp"
#include "io/hash.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <unordered_set>

namespace bathys::io {
namespace {

static_assert(std::endian::native == std::endian::little, "payloads are copied as they are stored: little-endian");

// The format's own limit; the header of 100,000 tensors has about 11 MB.
constexpr std::uint64_t kMaxHeaderBytes = 100'000'000;
constexpr std::size_t kMaxRank = 64;
constexpr int kMaxMetadataDepth = 64;

struct DtypeSize {
  std::string_view name;
  int bits;
};
constexpr std::array kDtypes = {
    DtypeSize{"BOOL", 8},    DtypeSize{"U8", 8},      DtypeSize{"I8", 8},   DtypeSize{"F8_E5M2", 8},
    DtypeSize{"F8_E4M3", 8}, DtypeSize{"F8_E8M0", 8}, DtypeSize{"I16", 16}, DtypeSize{"U16", 16},
    DtypeSize{"F16", 16},    DtypeSize{"BF16", 16},   DtypeSize{"I32", 32}, DtypeSize{"U32", 32},
    DtypeSize{"F32", 32},    DtypeSize{"I64", 64},    DtypeSize{"U64", 64}, DtypeSize{"F64", 64},
    DtypeSize{"C64", 64},
};

// Bytes of a tensor, or nothing when the product leaves 63 bits or the dtype has no known size.
std::optional<std::uint64_t> payload_bytes_of(const TensorInfo& tensor) {
  const auto bits = dtype_bits(tensor.dtype);
  if (!bits) return std::nullopt;
  std::int64_t bytes = *bits / 8;
  bool zero = false;
  for (const std::int64_t extent : tensor.shape) zero = zero || extent == 0;
  if (zero) return 0;
  for (const std::int64_t extent : tensor.shape) {
    if (__builtin_mul_overflow(bytes, extent, &bytes)) return std::nullopt;
  }
  return static_cast<std::uint64_t>(bytes);
}

// Reads {"name": {"dtype": .., "shape": [..], "data_offsets": [b, e]}, .., "__metadata__": {..}}.
class HeaderReader final : public StrictSax {
 public:
  explicit HeaderReader(std::vector<TensorInfo>& out) : out_(out) {}

  bool start_object(std::size_t /*n*/) override {
    if (skipping()) return deeper();
    if (field_ != Field::none || level_ >= 2) return refuse("an object");
    ++level_;
    if (level_ == 2 && in_metadata_) {
      skip_depth_ = 1;
      level_ = 1;
    }
    return true;
  }
  bool end_object() override {
    if (skipping()) return shallower();
    if (level_ == 2 && !complete()) return false;
    --level_;
    return true;
  }
  bool start_array(std::size_t /*n*/) override {
    if (skipping()) return deeper();
    if (level_ != 2 || in_array_ || (field_ != Field::shape && field_ != Field::offsets)) return refuse("a list");
    in_array_ = true;
    return true;
  }
  bool end_array() override {
    if (skipping()) return shallower();
    in_array_ = false;
    field_ = Field::none;
    return true;
  }
  bool key(string_t& name) override {
    if (skipping()) return true;
    if (level_ == 1) {
      if (!names_.insert(name).second) return refuse_as(fmt::format("tensor {} stands twice in the header", name));
      in_metadata_ = name == "__metadata__";
      if (!in_metadata_) {
        out_.push_back({name, {}, {}, 0, 0});
        seen_ = 0;
        offsets_.clear();
      }
      return true;
    }
    field_ = name == "dtype"          ? Field::dtype
             : name == "shape"        ? Field::shape
             : name == "data_offsets" ? Field::offsets
                                      : Field::none;
    if (field_ == Field::none)
      return refuse_as(fmt::format("tensor {} has an unknown member {}", out_.back().name, name));
    const unsigned bit = 1U << static_cast<unsigned>(field_);
    if ((seen_ & bit) != 0) return refuse_as(fmt::format("tensor {} has two members {}", out_.back().name, name));
    seen_ |= bit;
    return true;
  }
  bool string(string_t& value) override {
    if (skipping()) return true;
    if (level_ != 2 || field_ != Field::dtype) return refuse("a string");
    out_.back().dtype = value;
    field_ = Field::none;
    return true;
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (skipping()) return true;
    if (!in_array_) return refuse("a number");
    if (value > static_cast<number_unsigned_t>(INT64_MAX)) return refuse(fmt::format("{}, beyond 2^63", value));
    if (field_ == Field::offsets) {
      offsets_.push_back(value);
      return offsets_.size() <= 2 || refuse("a list of more than 2 numbers");
    }
    out_.back().shape.push_back(static_cast<std::int64_t>(value));
    return out_.back().shape.size() <= kMaxRank || refuse(fmt::format("a list of more than {} numbers", kMaxRank));
  }
  bool null() override { return skipping() || refuse("null"); }
  bool boolean(bool /*v*/) override { return skipping() || refuse("a boolean"); }
  bool number_integer(number_integer_t v) override {
    return skipping() || refuse(fmt::format("{}, expected at least 0", v));
  }
  bool number_float(number_float_t v, const string_t& text) override {
    return skipping() || StrictSax::number_float(v, text);
  }

 private:
  enum class Field : unsigned { none, dtype, shape, offsets };

  [[nodiscard]] bool skipping() const { return skip_depth_ > 0; }
  bool deeper() { return ++skip_depth_ <= kMaxMetadataDepth || refuse("nested too deep"); }
  bool shallower() {
    --skip_depth_;
    return true;
  }
  [[nodiscard]] std::string place() const override {
    if (level_ == 0) return "the header";
    if (in_metadata_) return "__metadata__";
    std::string tensor = out_.empty() ? std::string("the header") : "tensor " + out_.back().name;
    switch (field_) {
      case Field::dtype:
        return tensor + ": dtype";
      case Field::shape:
        return tensor + ": shape";
      case Field::offsets:
        return tensor + ": data_offsets";
      case Field::none:
        break;
    }
    return tensor;
  }
  bool complete() {
    constexpr unsigned kAll = 1U << 1U | 1U << 2U | 1U << 3U;
    TensorInfo& tensor = out_.back();
    if (seen_ != kAll) return refuse_as(fmt::format("tensor {} lacks dtype, shape or data_offsets", tensor.name));
    if (offsets_.size() != 2 || offsets_[0] > offsets_[1]) {
      return refuse_as(fmt::format("tensor {}: data_offsets are not [begin, end]", tensor.name));
    }
    tensor.offset = offsets_[0];
    tensor.bytes = offsets_[1] - offsets_[0];
    return true;
  }

  std::vector<TensorInfo>& out_;
  std::unordered_set<std::string> names_;
  std::vector<std::uint64_t> offsets_;
  int level_ = 0;
  int skip_depth_ = 0;
  bool in_metadata_ = false;
  bool in_array_ = false;
  unsigned seen_ = 0;
  Field field_ = Field::none;
};

// The payloads must lie one after another from 0 to the end; tensors is sorted by offset.
void check_layout(const std::vector<TensorInfo>& tensors, std::uint64_t payload_bytes, const std::string& name) {
  std::uint64_t at = 0;
  const TensorInfo* before = nullptr;
  for (const TensorInfo& tensor : tensors) {
    require(tensor.offset + tensor.bytes <= payload_bytes, ExitCode::bad_input,
            "{}: tensor {} ends at payload byte {}, but the file has {}: the file is truncated or its header is wrong",
            name, tensor.name, tensor.offset + tensor.bytes, payload_bytes);
    require(tensor.offset >= at, ExitCode::bad_input, "{}: tensors {} and {} overlap", name,
            before ? before->name : std::string(), tensor.name);
    require(tensor.offset == at, ExitCode::bad_input,
            "{}: payload bytes {} to {}, before tensor {}, belong to no tensor", name, at, tensor.offset, tensor.name);
    const auto bytes = payload_bytes_of(tensor);
    require(!dtype_bits(tensor.dtype) || (bytes && *bytes == tensor.bytes), ExitCode::bad_input,
            "{}: tensor {} has {} bytes, its dtype {} and shape {} mean {}", name, tensor.name, tensor.bytes,
            tensor.dtype, shape_text(tensor.shape), bytes ? std::to_string(*bytes) : "more than 2^63");
    at += tensor.bytes;
    before = &tensor;
  }
  require(at == payload_bytes, ExitCode::bad_input, "{}: {} bytes after the last tensor belong to none", name,
          payload_bytes - at);
}

}  // namespace

std::optional<int> dtype_bits(std::string_view dtype) {
  const auto* const found =
      std::find_if(kDtypes.begin(), kDtypes.end(), [&](const DtypeSize& d) { return d.name == dtype; });
  return found == kDtypes.end() ? std::nullopt : std::optional<int>(found->bits);
}

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text;
  for (const std::int64_t extent : shape) text += (text.empty() ? "" : ", ") + std::to_string(extent);
  return "[" + text + "]";
}

std::vector<TensorInfo> parse_safetensors_header(std::string_view header, std::uint64_t payload_offset,
                                                 std::uint64_t payload_bytes, const std::string& name) {
  std::vector<TensorInfo> tensors;
  const auto cause = HeaderReader(tensors).run(header);
  require(!cause, ExitCode::bad_input, "{}: {}", name, cause.value_or(""));
  std::sort(tensors.begin(), tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return a.offset != b.offset ? a.offset < b.offset
                                : a.bytes < b.bytes;  // empty tensors stand before their neighbour
  });
  check_layout(tensors, payload_bytes, name);
  for (TensorInfo& tensor : tensors) tensor.offset += payload_offset;
  return tensors;
}

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(path) {
  std::array<char, 64> head{};
  const std::size_t head_bytes = std::min<std::size_t>(head.size(), static_cast<std::size_t>(file_.size()));
  file_.read_at(0, std::as_writable_bytes(std::span(head).first(head_bytes)));
  const std::string what = describe_non_file({head.data(), head_bytes}, file_.size());
  require(what.empty(), ExitCode::bad_input, "{} is {}", path, what);
  require(file_.size() >= 8, ExitCode::bad_input, "{}: has {} bytes, a safetensors file has at least 8", path,
          file_.size());
  std::uint64_t length = 0;
  std::memcpy(&length, head.data(), sizeof length);
  require(length <= kMaxHeaderBytes, ExitCode::bad_input,
          "{}: its first 8 bytes promise a header of {} bytes: not a safetensors file", path, length);
  require(length <= file_.size() - 8, ExitCode::bad_input,
          "{}: promises a header of {} bytes, but only {} follow: the file is truncated or not a safetensors file",
          path, length, file_.size() - 8);
  std::string header(static_cast<std::size_t>(length), '\0');
  file_.read_at(8, std::as_writable_bytes(std::span(header)));
  header_sha256_ = sha256_hex(header);
  tensors_ = parse_safetensors_header(header, 8 + length, file_.size() - 8 - length, path);
}

SafetensorsWriter::SafetensorsWriter(const std::string& path, const std::vector<TensorInfo>& tensors)
    : path_(path), file_(path) {
  nlohmann::ordered_json::object_t members;  // a plain list of pairs: no search on insertion
  members.reserve(tensors.size());
  for (const TensorInfo& tensor : tensors) {
    nlohmann::ordered_json entry;
    entry["dtype"] = tensor.dtype;
    entry["shape"] = tensor.shape;
    entry["data_offsets"] = {promised_, promised_ + tensor.bytes};
    members.push_back({tensor.name, std::move(entry)});
    promised_ += tensor.bytes;
  }
  std::string header = nlohmann::ordered_json(std::move(members)).dump();
  header.append((8 - header.size() % 8) % 8, ' ');
  const std::uint64_t length = header.size();
  file_.write(std::as_bytes(std::span(&length, 1)));
  file_.write(header);
}

void SafetensorsWriter::append(std::span<const std::byte> bytes) {
  file_.write(bytes);
  appended_ += bytes.size();
}

void SafetensorsWriter::commit() {
  require(appended_ == promised_, ExitCode::internal, "{}: {} payload bytes written, {} promised", path_, appended_,
          promised_);
  file_.commit();
}

}  // namespace bathys::io
