// SPDX-License-Identifier: Apache-2.0
// FP4 weights times Q8 activations on the host.  A block's sum is an exact integer in units of 2^-10 whatever the order
// (docs/numerics.md, "Linear layers"), so both bodies below, 8-bit products for one to three rows and 16-bit products
// for more, give the same bits.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_fp4.cpp"
// clang-format off: foreach_target includes this file again for each instruction set, so it must come first
#include <hwy/foreach_target.h>
// clang-format on

#include "kernels/linear_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bathys::kernels::HWY_NAMESPACE {
namespace {

constexpr int kBytesRows = 3;     // up to here 8-bit products, straight from the packed codes
constexpr int kChunkBlocks = 16;  // blocks unpacked at a time: 16 KiB of int16, which stay in L1
constexpr int kBlockPairs = kBlock / 2;
constexpr int kTileRows =
    kVectors == 1 ? 8 : 4;  // more would spill: a product needs a register beside sums, weights and broadcast
constexpr int kGroups = 4;  // groups of eight inputs in a block
constexpr int kGroupBytes = 4 * kPanel;

// E2M1 codes as twice their value, plus `offset` (12 makes them unsigned).
HWY_INLINE VU8 value_table(int offset) {
  alignas(16) static constexpr std::int8_t kTwice[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
  alignas(16) std::uint8_t table[16];
  for (int i = 0; i < 16; ++i) table[i] = static_cast<std::uint8_t>(kTwice[i] + offset);
  return hn::LoadDup128(U8(), table);
}

struct Nibbles {
  VU8 low, high;  // inputs 0 2 1 3 and 4 6 5 7 of each row's group
};
HWY_INLINE Nibbles look_up(VU8 table, const std::uint8_t* codes) {
  const VU8 mask = hn::Set(U8(), 0x0f);
  const VU8 x = hn::LoadU(U8(), codes);
  const VU8 shifted = hn::BitCast(U8(), hn::ShiftRight<4>(hn::BitCast(U16(), x)));
  return {hn::TableLookupBytes(table, hn::And(x, mask)), hn::TableLookupBytes(table, hn::And(shifted, mask))};
}

HWY_INLINE VI32 broadcast_four(const std::int8_t* p) {
  std::int32_t four;
  std::memcpy(&four, p, sizeof four);
  return hn::Set(I32(), four);
}

HWY_INLINE VI32 widen(VI16 sums, std::int16_t factor) {
  return multiply_add_pairs(sums, hn::Set(I16(), factor), hn::Zero(I32()));
}

// ---- One to three rows: (code + 12) * 512 q with 512 q = 4096 h1 + 32 h0 + r, less 12 times the sum of 512 q.

// The block's integers of vector v; a pair of byte products fits int16 over a whole block (at most 8 * 2 * 24 * 64 =
// 24576).
template <int kRows>
HWY_INLINE void byte_sums(VU8 table, const std::uint8_t* codes, const std::int8_t* const* parts, VI32 (&sum)[kRows]) {
  VI16 low[kRows], high[kRows];
  for (int m = 0; m < kRows; ++m) low[m] = high[m] = hn::Zero(I16());
  HWY_UNROLL(4)
  for (int g = 0; g < kGroups; ++g) {
    const Nibbles w = look_up(table, codes + g * kGroupBytes);
    HWY_UNROLL(3)
    for (int m = 0; m < kRows; ++m) {
      const std::int8_t* p = parts[m] + g * 24;
      low[m] = multiply_add_bytes(w.low, broadcast_four(p), low[m]);
      high[m] = multiply_add_bytes(w.low, broadcast_four(p + 4), high[m]);
      low[m] = multiply_add_bytes(w.high, broadcast_four(p + 12), low[m]);
      high[m] = multiply_add_bytes(w.high, broadcast_four(p + 16), high[m]);
    }
  }
  for (int m = 0; m < kRows; ++m) sum[m] = hn::Add(widen(low[m], 32), widen(high[m], 4096));
}

// Adds what r adds to one vector of sums, for the few blocks that have any.
HWY_NOINLINE void add_rest(const std::uint8_t* codes, const std::int8_t* parts, std::int32_t* sums) {
  const VU8 table = value_table(12);
  VI16 rest = hn::Zero(I16());
  for (int g = 0; g < kGroups; ++g) {
    const Nibbles w = look_up(table, codes + g * kGroupBytes);
    rest = multiply_add_bytes(w.low, broadcast_four(parts + g * 24 + 8), rest);
    rest = multiply_add_bytes(w.high, broadcast_four(parts + g * 24 + 20), rest);
  }
  hn::Store(hn::Add(hn::Load(I32(), sums), widen(rest, 1)), I32(), sums);
}

template <int kRows>
void byte_panel(const LinearJob& job, const std::uint8_t* panel, std::int64_t row0, float* c) {
  const std::int8_t* parts[kRows];
  const float* scales[kRows];
  const std::int32_t* sums[kRows];
  const std::uint8_t* rests[kRows];
  VF acc[kRows][kVectors];
  for (int m = 0; m < kRows; ++m) {
    const std::int64_t row = job.input_row(row0 + m);
    parts[m] = job.parts + row * job.part_stride;
    scales[m] = job.scales + row * job.block_stride;
    sums[m] = job.sums + row * job.block_stride;
    rests[m] = job.rests + row * job.block_stride;
    for (int v = 0; v < kVectors; ++v) acc[m][v] = hn::Zero(F32());
  }
  const VU8 table = value_table(12);
  const std::uint8_t* codes = panel + job.layout.scale_bytes;
  for (std::int64_t b = 0; b < job.layout.blocks; ++b, codes += kGroups * kGroupBytes) {
    prefetch(codes, kGroups * kGroupBytes);
    HWY_UNROLL(2)
    for (int v = 0; v < kVectors; ++v) {
      VI32 sum[kRows];
      byte_sums<kRows>(table, codes + v * kLanes * 4, parts, sum);
      const VF w_scale = load_scales(panel + b * kPanel + v * kLanes);
      HWY_UNROLL(3)
      for (int m = 0; m < kRows; ++m) {
        VI32 s = hn::Sub(sum[m], hn::Set(I32(), 12 * sums[m][b]));
        if (HWY_UNLIKELY((rests[m][b] & Activation::kHasR) != 0)) {
          alignas(64) std::int32_t with_rest[kLanes];
          hn::Store(s, I32(), with_rest);
          add_rest(codes + v * kLanes * 4, parts[m], with_rest);
          s = hn::Load(I32(), with_rest);
        }
        // 2^-10 s_a s_w is a power of two and exact, so this is fma(2^-10 I, s_a s_w, acc).
        const VF scale = hn::Mul(hn::Set(F32(), 0x1p-10F * scales[m][b]), w_scale);
        acc[m][v] = hn::MulAdd(hn::ConvertTo(F32(), s), scale, acc[m][v]);
      }
    }
    for (int m = 0; m < kRows; ++m) parts[m] += 3 * kBlock;
  }
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) hn::StoreU(acc[m][v], F32(), c + m * kPanel + v * kLanes);
  }
}

// ---- More rows: 512 q = 8 hi + lo in 16-bit products; weights are unpacked once for all rows.

struct Chunk {
  alignas(64) std::int16_t weights[kChunkBlocks][kBlockPairs][kPanel][2];
  alignas(64) float scales[kChunkBlocks][kPanel];
};

void unpack(const LinearJob& job, const std::uint8_t* panel, std::int64_t block0, int blocks, Chunk& out) {
  const VU8 table = value_table(0);
  for (int b = 0; b < blocks; ++b) {
    const std::uint8_t* codes = panel + job.layout.scale_bytes + (block0 + b) * kGroups * kGroupBytes;
    prefetch(codes, kGroups * kGroupBytes);
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(load_scales(panel + (block0 + b) * kPanel + v * kLanes), F32(), out.scales[b] + v * kLanes);
      for (int g = 0; g < kGroups; ++g) {
        const Nibbles w = look_up(table, codes + g * kGroupBytes + v * kLanes * 4);
        const VI16 low = hn::BitCast(I16(), w.low);
        const VI16 high = hn::BitCast(I16(), w.high);
        hn::Store(hn::ShiftRight<8>(hn::ShiftLeft<8>(low)), I16(), out.weights[b][4 * g][v * kLanes]);
        hn::Store(hn::ShiftRight<8>(low), I16(), out.weights[b][4 * g + 1][v * kLanes]);
        hn::Store(hn::ShiftRight<8>(hn::ShiftLeft<8>(high)), I16(), out.weights[b][4 * g + 2][v * kLanes]);
        hn::Store(hn::ShiftRight<8>(high), I16(), out.weights[b][4 * g + 3][v * kLanes]);
      }
    }
  }
}

// What a tile of rows reads, at the chunk's first block.
struct TileRows {
  const std::int16_t* hi[kTileRows];
  const std::int16_t* lo[kTileRows];
  const float* scales[kTileRows];
  const std::uint8_t* rests[kTileRows];
};

template <int kRows>
HWY_INLINE void pair_sums(const std::int16_t* weights, const std::int16_t* const (&x)[kRows],
                          VI32 (&sum)[kRows][kVectors]) {
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) sum[m][v] = hn::Zero(I32());
  }
  HWY_UNROLL(2)
  for (int p = 0; p < kBlockPairs; ++p) {
    VI16 w[kVectors];
    for (int v = 0; v < kVectors; ++v) w[v] = hn::Load(I16(), weights + (p * kPanel + v * kLanes) * 2);
    HWY_UNROLL(8)
    for (int m = 0; m < kRows; ++m) {
      const VI16 pair = hn::BitCast(I16(), broadcast_pair(x[m] + 2 * p));
      for (int v = 0; v < kVectors; ++v) sum[m][v] = multiply_add_pairs(w[v], pair, sum[m][v]);
    }
  }
}

// c += s_a s_w 2^-10 * (8 sum + what lo adds): one row of one block, out of the hot loop's way.
HWY_NOINLINE void add_row_with_lo(const Chunk& chunk, int b, const std::int16_t* lo, float scale,
                                  const std::int32_t* sums, float* c) {
  const std::int16_t* const x[1] = {lo};
  VI32 rest[1][kVectors];
  pair_sums<1>(&chunk.weights[b][0][0][0], x, rest);
  for (int v = 0; v < kVectors; ++v) {
    const VI32 whole = hn::Add(hn::ShiftLeft<3>(hn::Load(I32(), sums + v * kLanes)), rest[0][v]);
    const VF s = hn::Mul(hn::Set(F32(), 0x1p-10F * scale), hn::Load(F32(), chunk.scales[b] + v * kLanes));
    float* out = c + v * kLanes;
    hn::Store(hn::MulAdd(hn::ConvertTo(F32(), whole), s, hn::Load(F32(), out)), F32(), out);
  }
}

template <int kRows>
void pair_tile(const Chunk& chunk, int blocks, const TileRows& rows, float* c) {
  const std::int16_t* hi[kRows];
  for (int m = 0; m < kRows; ++m) hi[m] = rows.hi[m];
  for (int b = 0; b < blocks; ++b) {
    VI32 sum[kRows][kVectors];
    pair_sums<kRows>(&chunk.weights[b][0][0][0], hi, sum);
    HWY_UNROLL(8)
    for (int m = 0; m < kRows; ++m) {
      hi[m] += kBlock;
      if (HWY_UNLIKELY((rows.rests[m][b] & Activation::kHasLo) != 0)) {
        alignas(64) std::int32_t sums[kPanel];
        for (int v = 0; v < kVectors; ++v) hn::Store(sum[m][v], I32(), sums + v * kLanes);
        add_row_with_lo(chunk, b, rows.lo[m] + b * kBlock, rows.scales[m][b], sums, c + m * kPanel);
        continue;
      }
      const VF s_a = hn::Set(F32(), 0x1p-7F * rows.scales[m][b]);  // 8 * 2^-10
      for (int v = 0; v < kVectors; ++v) {
        float* out = c + m * kPanel + v * kLanes;
        const VF s = hn::Mul(s_a, hn::Load(F32(), chunk.scales[b] + v * kLanes));
        hn::Store(hn::MulAdd(hn::ConvertTo(F32(), sum[m][v]), s, hn::Load(F32(), out)), F32(), out);
      }
    }
  }
}

void run_pair_tile(int n_rows, const Chunk& chunk, int blocks, const TileRows& rows, float* c) {
  switch (n_rows) {
    case 1:
      return pair_tile<1>(chunk, blocks, rows, c);
    case 2:
      return pair_tile<2>(chunk, blocks, rows, c);
    case 3:
      return pair_tile<3>(chunk, blocks, rows, c);
    case 4:
      return pair_tile<4>(chunk, blocks, rows, c);
#if HWY_TARGET <= HWY_AVX3
    case 5:
      return pair_tile<5>(chunk, blocks, rows, c);
    case 6:
      return pair_tile<6>(chunk, blocks, rows, c);
    case 7:
      return pair_tile<7>(chunk, blocks, rows, c);
    case 8:
      return pair_tile<8>(chunk, blocks, rows, c);
#endif
    default:
      return;
  }
}

// c += one chunk of one panel, for all rows of the unit.
void pair_chunk(const LinearJob& job, const std::uint8_t* panel, const LinearUnit& unit, std::int64_t block0,
                Chunk& chunk, float* c) {
  const Tiles tiles(unit.n_rows, kTileRows);
  const int blocks = static_cast<int>(std::min<std::int64_t>(kChunkBlocks, job.layout.blocks - block0));
  unpack(job, panel, block0, blocks, chunk);
  for (int t = 0; t < tiles.count; ++t) {
    TileRows rows{};
    for (int m = 0; m < tiles.rows(t); ++m) {
      const std::int64_t row = job.input_row(unit.row0 + tiles.first(t) + m);
      rows.hi[m] = job.hi + row * job.hi_stride + block0 * kBlock;
      rows.lo[m] = job.lo + row * job.hi_stride + block0 * kBlock;
      rows.scales[m] = job.scales + row * job.block_stride + block0;
      rows.rests[m] = job.rests + row * job.block_stride + block0;
    }
    run_pair_tile(tiles.rows(t), chunk, blocks, rows, c + tiles.first(t) * kPanel);
  }
}

void few_rows(const LinearJob& job, const std::uint8_t* matrix, const LinearUnit& unit) {
  alignas(64) float c[kBytesRows * kPanel];
  for (std::int64_t p = unit.panel_begin; p < unit.panel_end; ++p) {
    const std::uint8_t* panel = matrix + p * job.layout.panel_bytes;
    switch (unit.n_rows) {
      case 1:
        byte_panel<1>(job, panel, unit.row0, c);
        break;
      case 2:
        byte_panel<2>(job, panel, unit.row0, c);
        break;
      default:
        byte_panel<3>(job, panel, unit.row0, c);
        break;
    }
    store_panel(job, p, unit, c);
  }
}

void many_rows(const LinearJob& job, const std::uint8_t* matrix, const LinearUnit& unit) {
  alignas(64) float c[kPanelGroup][kMaxUnitRows * kPanel];
  Chunk chunk;  // NOLINT(cppcoreguidelines-pro-type-member-init): unpack() fills what is read of it
  for (std::int64_t p0 = unit.panel_begin; p0 < unit.panel_end; p0 += kPanelGroup) {
    const int panels = static_cast<int>(std::min<std::int64_t>(kPanelGroup, unit.panel_end - p0));
    for (int i = 0; i < panels; ++i) std::fill_n(c[i], unit.n_rows * kPanel, 0.0F);
    for (std::int64_t block0 = 0; block0 < job.layout.blocks; block0 += kChunkBlocks) {
      for (int i = 0; i < panels; ++i)
        pair_chunk(job, matrix + (p0 + i) * job.layout.panel_bytes, unit, block0, chunk, c[i]);
    }
    for (int i = 0; i < panels; ++i) store_panel(job, p0 + i, unit, c[i]);
  }
}

}  // namespace

void fp4_unit(const LinearJob& job, const LinearUnit& unit) {
  const std::uint8_t* matrix = job.weights + unit.matrix * job.layout.panels * job.layout.panel_bytes;
  if (unit.n_rows <= kBytesRows) {
    few_rows(job, matrix, unit);
  } else {
    many_rows(job, matrix, unit);
  }
}

}  // namespace bathys::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bathys::kernels {
HWY_EXPORT(fp4_unit);

void run_fp4_unit(const LinearJob& job, const LinearUnit& unit) { HWY_DYNAMIC_DISPATCH(fp4_unit)(job, unit); }

}  // namespace bathys::kernels
#endif  // HWY_ONCE
