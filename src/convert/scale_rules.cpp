// SPDX-License-Identifier: Apache-2.0
#include "convert/scale_rules.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>

namespace bathys::convert {
namespace {

std::vector<std::byte> read_tensor(const io::TensorPlace& place) {
  std::vector<std::byte> bytes(static_cast<std::size_t>(place.tensor->bytes));
  place.file->file().read_at(place.tensor->offset, bytes);
  return bytes;
}

// Whether stored columns [first, last) of stored rows [row, end_row) of a matrix hold a code other than +-0.
bool has_nonzero(const io::TensorPlace& weight, catalog::Dtype dtype, std::int64_t row, std::int64_t end_row,
                 std::int64_t first, std::int64_t last) {
  // The sign bits: of an E4M3 code, or of both E2M1 codes of a byte.
  const std::byte sign = dtype == catalog::Dtype::i8 ? std::byte{0x88} : std::byte{0x80};
  const std::int64_t columns = weight.tensor->shape[1];
  std::vector<std::byte> codes(static_cast<std::size_t>(last - first));
  for (; row < end_row; ++row) {
    weight.file->file().read_at(weight.tensor->offset + static_cast<std::uint64_t>(row * columns + first), codes);
    if (std::any_of(codes.begin(), codes.end(), [&](std::byte code) { return (code & ~sign) != std::byte{0}; }))
      return true;
  }
  return false;
}

void check_member(const catalog::DatasetSpec& dataset, const io::TensorPlace& weight, const io::TensorPlace& scale) {
  const std::vector<std::byte> codes = read_tensor(scale);
  const std::int64_t grid_columns = scale.tensor->shape[1];
  const std::int64_t per_byte = dataset.dtype == catalog::Dtype::i8 ? 2 : 1;
  for (std::size_t i = 0; i < codes.size(); ++i) {
    const int code = std::to_integer<int>(codes[i]);
    if (code >= kMinScaleCode && code <= kMaxScaleCode) continue;
    const std::int64_t block_row = static_cast<std::int64_t>(i) / grid_columns;
    const std::int64_t block_column = static_cast<std::int64_t>(i) % grid_columns;
    require(code != kNanScaleCode, ExitCode::bad_input, "{}: tensor {} has the NaN scale code 255 at [{}, {}]",
            scale.file->path(), scale.tensor->name, block_row, block_column);
    const std::int64_t row = block_row * dataset.block[0];
    const std::int64_t end_row = std::min<std::int64_t>(row + dataset.block[0], weight.tensor->shape[0]);
    const std::int64_t column = block_column * dataset.block[1] / per_byte;
    const std::int64_t end_column =
        std::min<std::int64_t>(column + dataset.block[1] / per_byte, weight.tensor->shape[1]);
    require(!has_nonzero(weight, dataset.dtype, row, end_row, column, end_column), ExitCode::bad_input,
            "{}: tensor {} has scale 2^{} at [{}, {}], where {} has nonzero weights; scales from 2^{} to 2^{} can be "
            "computed with",
            scale.file->path(), scale.tensor->name, code - 127, block_row, block_column, weight.tensor->name,
            kMinScaleCode - 127, kMaxScaleCode - 127);
  }
}

}  // namespace

std::ptrdiff_t find_nan_scale(const std::byte* bytes, std::size_t count) {
  const void* found = std::memchr(bytes, kNanScaleCode, count);
  return found == nullptr ? -1 : static_cast<const std::byte*>(found) - bytes;
}

std::ptrdiff_t find_nan_code(const std::byte* bytes, std::size_t count) {
  constexpr std::byte kNan{0x7f};
  unsigned any = 0;  // without a branch, so that the common case is one vectorized pass
  for (std::size_t i = 0; i < count; ++i) any |= static_cast<unsigned>((bytes[i] & kNan) == kNan);
  if (any == 0) return -1;
  return std::find_if(bytes, bytes + count, [&](std::byte code) { return (code & kNan) == kNan; }) - bytes;
}

void check_linear_scales(const SourceModel& source, std::size_t dataset) {
  const catalog::DatasetSpec& weight = source.table[dataset];
  if (source.synthetic || weight.scale.empty() || weight.rule == catalog::ShardRule::table_rows) return;
  // Scales stand before their weight, close by.
  std::size_t scale = dataset;
  while (source.table[scale].name != weight.scale) {
    require(scale > 0, ExitCode::internal, "{}: its scales {} do not stand before it", weight.name, weight.scale);
    --scale;
  }
  for (std::size_t member = 0; member < source.places[dataset].size(); ++member) {
    check_member(weight, source.places[dataset][member], source.places[scale][member]);
  }
}

}  // namespace bathys::convert
