// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "kernels/linear.hpp"

#include <cstdint>

// Where a weight lies in a packed matrix: the one truth for the packer and every kernel (docs/numerics.md, "Packed
// weights"). A panel holds 16 output rows.  In it, from a 64-byte boundary on: the scales (fp4: 16 bytes a block, one
// for each row; fp8: one byte a block; else none), padded to 64 bytes, then the codes, block after block.
namespace bathys::kernels {

inline constexpr int kPanel = 16;  // rows of a panel
inline constexpr int kBlock = 32;  // inputs of a block

// Leading type so that no unit computes an offset in 32 bits.
struct PackedLayout {
  std::int64_t panels = 0;       // ceil(n / 16)
  std::int64_t blocks = 0;       // ceil(k / 32)
  std::int64_t scale_bytes = 0;  // of one panel, padded
  std::int64_t block_bytes = 0;  // codes of one block of one panel
  std::int64_t panel_bytes = 0;
};

BATHYS_FUNCTION PackedLayout packed_layout(WeightKind kind, std::int64_t n, std::int64_t k) {
  PackedLayout out;
  out.panels = (n + kPanel - 1) / kPanel;
  out.blocks = (k + kBlock - 1) / kBlock;
  const std::int64_t scales = kind == WeightKind::fp4 ? out.blocks * kPanel : kind == WeightKind::fp8 ? out.blocks : 0;
  out.scale_bytes = (scales + 63) / 64 * 64;
  out.block_bytes = std::int64_t{kBlock} * kPanel * (kind == WeightKind::f32 ? 4 : kind == WeightKind::bf16 ? 2 : 1);
  if (kind == WeightKind::fp4) out.block_bytes /= 2;
  out.panel_bytes = out.scale_bytes + out.blocks * out.block_bytes;
  return out;
}

// Byte of the scale of row r (0..15) in a panel.
BATHYS_FUNCTION std::int64_t scale_offset(WeightKind kind, std::int64_t block, int r) {
  return kind == WeightKind::fp4 ? block * kPanel + r : block;
}

// Byte of weight (r, j) inside the codes of a block, j = k mod 32.
//   fp4: four groups of eight inputs; a group holds 4 bytes a row: low nibbles are inputs 0 2 1 3, high nibbles inputs
//   4 6 5 7, so that even bytes and odd bytes are neighbouring pairs once they are widened to 16 bits. fp8, bf16: pairs
//   of inputs, 16 rows a pair: one half of a 16- or 32-bit lane each, so that widening is a shift or a mask. f32: 16
//   rows an input.
BATHYS_FUNCTION std::int64_t code_offset(WeightKind kind, int r, int j) {
  switch (kind) {
    case WeightKind::fp4: {
      const int in_four = j % 4;
      const int byte = in_four == 1 ? 2 : in_four == 2 ? 1 : in_four;
      return (j / 8 * kPanel + r) * 4 + byte;
    }
    case WeightKind::fp8:
      return (j / 2 * kPanel + r) * 2 + j % 2;
    case WeightKind::bf16:
      return ((std::int64_t{j} / 2 * kPanel + r) * 2 + j % 2) * 2;
    default:
      return (std::int64_t{j} * kPanel + r) * 4;
  }
}

// Whether an fp4 weight sits in the high nibble of its byte.
BATHYS_FUNCTION bool in_high_nibble(int j) { return j % 8 >= 4; }

}  // namespace bathys::kernels
