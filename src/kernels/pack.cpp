// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_layout.hpp"

#include <cstring>

namespace bathys::kernels {
namespace {

constexpr std::uint8_t kScaleOne = 127;  // E8M0 of 1
constexpr std::uint8_t kScaleNan = 255;
constexpr std::uint8_t kE4m3Nan = 0x7f;

// A block of zeros keeps no scale of its own: whatever code a checkpoint has there (2^127 perhaps), it cannot turn a
// zero into a NaN.
std::uint8_t stored_scale(std::uint8_t code, bool all_zero, std::int64_t row, std::int64_t block) {
  if (all_zero) return kScaleOne;
  require(code != kScaleNan, ExitCode::bad_input,
          "the scale of row {}, inputs {} to {} of a weight is NaN (E8M0 code 255), a power of two is wanted; convert "
          "the checkpoint again",
          row, block * kBlock, block * kBlock + kBlock - 1);
  return code;
}

struct Target {
  const PackedLayout layout;
  WeightKind kind;
  std::int64_t k;
  std::uint8_t* packed;

  [[nodiscard]] std::uint8_t* panel(std::int64_t row) const { return packed + row / kPanel * layout.panel_bytes; }
  [[nodiscard]] std::uint8_t* codes(std::int64_t row, std::int64_t block) const {
    return panel(row) + layout.scale_bytes + block * layout.block_bytes;
  }
  [[nodiscard]] std::uint8_t& scale(std::int64_t row, std::int64_t block) const {
    return panel(row)[scale_offset(kind, block, static_cast<int>(row % kPanel))];
  }
  [[nodiscard]] int block_length(std::int64_t block) const {
    return static_cast<int>(std::min<std::int64_t>(kBlock, k - block * kBlock));
  }
};

void pack_fp4_row(const Target& to, std::int64_t row, const std::uint8_t* codes, const std::uint8_t* scales) {
  const int r = static_cast<int>(row % kPanel);
  for (std::int64_t block = 0; block < to.layout.blocks; ++block) {
    std::uint8_t* out = to.codes(row, block);
    for (int byte = 0; byte < 4; ++byte) {
      for (int group = 0; group < 4; ++group) out[(group * kPanel + r) * 4 + byte] = 0;
    }
    int magnitudes = 0;
    for (int j = 0; j < to.block_length(block); ++j) {
      const std::int64_t column = block * kBlock + j;
      const int code = column % 2 == 0 ? codes[column / 2] & 0xf : codes[column / 2] >> 4;
      magnitudes |= code & 7;
      auto& byte = out[code_offset(WeightKind::fp4, r, j)];
      byte = static_cast<std::uint8_t>(byte | (in_high_nibble(j) ? code << 4 : code));
    }
    to.scale(row, block) = stored_scale(scales[block], magnitudes == 0, row, block);
  }
}

void pack_fp8_row(const Target& to, std::int64_t row, const std::uint8_t* codes) {
  const int r = static_cast<int>(row % kPanel);
  for (std::int64_t column = 0; column < to.k; ++column) {
    require((codes[column] & kE4m3Nan) != kE4m3Nan, ExitCode::bad_input,
            "row {}, input {} of a weight is NaN (E4M3 code {:#x}), a number is wanted; convert the checkpoint again",
            row, column, codes[column]);
    to.codes(row, column / kBlock)[code_offset(WeightKind::fp8, r, static_cast<int>(column % kBlock))] = codes[column];
  }
}

// One scale serves the 16 rows of a panel: tiles of the checkpoint have 32 rows, two panels.
void set_fp8_scales(const Target& to, std::int64_t row, const std::uint8_t* scales) {
  for (std::int64_t block = 0; block < to.layout.blocks; ++block) {
    const std::uint8_t* codes = to.codes(row, block);
    int magnitudes = 0;
    for (std::int64_t i = 0; i < to.layout.block_bytes; ++i) magnitudes |= codes[i] & 0x7f;
    to.scale(row, block) = stored_scale(scales[block], magnitudes == 0, row, block);
  }
}

template <class Element>
void pack_plain_row(const Target& to, std::int64_t row, const std::uint8_t* codes) {
  const int r = static_cast<int>(row % kPanel);
  for (std::int64_t column = 0; column < to.k; ++column) {
    std::memcpy(to.codes(row, column / kBlock) + code_offset(to.kind, r, static_cast<int>(column % kBlock)),
                codes + column * static_cast<std::int64_t>(sizeof(Element)), sizeof(Element));
  }
}

}  // namespace

std::size_t packed_bytes(WeightKind kind, std::int64_t n, std::int64_t k) {
  const PackedLayout layout = packed_layout(kind, n, k);
  return static_cast<std::size_t>(layout.panels * layout.panel_bytes);
}

void clear_packed(WeightKind kind, std::int64_t n, std::int64_t k, std::uint8_t* packed) {
  std::memset(packed, 0, packed_bytes(kind, n, k));
}

void pack_rows(WeightKind kind, std::int64_t n, std::int64_t k, std::int64_t row0, std::int64_t rows,
               const WeightRows& source, std::uint8_t* packed) {
  require(row0 >= 0 && rows >= 0 && row0 + rows <= n, ExitCode::internal,
          "pack_rows: rows {} to {} asked of a matrix of {} rows", row0, row0 + rows, n);
  require(kind != WeightKind::fp8 || row0 % kBlock == 0, ExitCode::internal,
          "pack_rows: fp8 rows start at {}, a multiple of 32 is wanted (a scale tile has 32 rows)", row0);
  const Target to{packed_layout(kind, n, k), kind, k, packed};
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t row = row0 + i;
    const std::uint8_t* codes = source.codes + i * source.code_stride;
    switch (kind) {
      case WeightKind::fp4:
        pack_fp4_row(to, row, codes, source.scales + i * source.scale_stride);
        break;
      case WeightKind::fp8:
        pack_fp8_row(to, row, codes);
        break;
      case WeightKind::bf16:
        pack_plain_row<std::uint16_t>(to, row, codes);
        break;
      case WeightKind::f32:
        pack_plain_row<float>(to, row, codes);
        break;
    }
  }
  for (std::int64_t i = 0; kind == WeightKind::fp8 && i < rows; i += kPanel) {
    set_fp8_scales(to, row0 + i, source.scales + i / kBlock * source.scale_stride);
  }
}

}  // namespace bathys::kernels
