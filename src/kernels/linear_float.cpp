// SPDX-License-Identifier: Apache-2.0
// FP8, bf16 and fp32 weights on the host: fp32 fma, sequential in k inside a block, one fma per block (docs/numerics.md, "Linear
// layers").  Lanes are output rows, so every instruction set computes the same numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_float.cpp"
#include <hwy/foreach_target.h>

#include "kernels/linear_tile-inl.hpp"

HWY_BEFORE_NAMESPACE();
namespace bathys::kernels::HWY_NAMESPACE {
namespace {

constexpr int kChunkBlocks = 8;  // blocks widened at a time: 16 KiB of fp32, which stay in L1
constexpr int kPairs = kBlock / 2;

// Weights of a panel from some block on, two inputs (one pair) at a time: even and odd hold the 16 rows.
struct FloatWeights {
  const float* codes;  // [k][16]
  static constexpr int kBlockBytes = kBlock * kPanel * 4;
  HWY_INLINE void pair(std::int64_t p, VF (&even)[kVectors], VF (&odd)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) {
      even[v] = hn::LoadU(F32(), codes + p * 2 * kPanel + v * kLanes);
      odd[v] = hn::LoadU(F32(), codes + (p * 2 + 1) * kPanel + v * kLanes);
    }
  }
};

struct Bf16Weights {
  const std::uint8_t* codes;  // [k/2][16] 32-bit lanes: the even input in the lower half
  static constexpr int kBlockBytes = kBlock * kPanel * 2;
  HWY_INLINE void pair(std::int64_t p, VF (&even)[kVectors], VF (&odd)[kVectors]) const {
    const U8 d8;
    for (int v = 0; v < kVectors; ++v) {
      const auto lanes = hn::BitCast(U32(), hn::LoadU(d8, codes + (p * kPanel + v * kLanes) * 4));
      even[v] = hn::BitCast(F32(), hn::ShiftLeft<16>(lanes));
      odd[v] = hn::BitCast(F32(), hn::And(lanes, hn::Set(U32(), 0xffff0000U)));
    }
  }
};

// An E4M3 code moved to bits 7..13 and 15 is an fp16 number of 2^-8 its value, subnormals included.  kExact multiplies by 2^8; otherwise
// the activation carries that factor.
template <bool kExact>
struct Fp8Weights {
  const std::uint8_t* codes;  // [k/2][16] 16-bit lanes: the even input in the lower half
  static constexpr int kBlockBytes = kBlock * kPanel;

  using Lanes = hn::FixedTag<std::int16_t, kPanel>;
  HWY_INLINE static void widen(hn::Vec<Lanes> half, VF (&out)[kVectors]) {
    const hn::Rebind<hwy::float16_t, F32> d16;
    const auto bits = hn::And(half, hn::Set(Lanes(), static_cast<std::int16_t>(0xbf80)));
#if HWY_TARGET <= HWY_AVX3
    out[0] = hn::PromoteTo(F32(), hn::BitCast(d16, bits));
#else
    const hn::Half<Lanes> d_half;
    out[0] = hn::PromoteTo(F32(), hn::BitCast(d16, hn::LowerHalf(d_half, bits)));
    out[1] = hn::PromoteTo(F32(), hn::BitCast(d16, hn::UpperHalf(d_half, bits)));
#endif
    if (kExact) {
      for (int v = 0; v < kVectors; ++v) out[v] = hn::Mul(out[v], hn::Set(F32(), 0x1p8F));
    }
  }
  HWY_INLINE void pair(std::int64_t p, VF (&even)[kVectors], VF (&odd)[kVectors]) const {
    const hn::Repartition<std::uint8_t, Lanes> d8;
    const auto lanes = hn::BitCast(Lanes(), hn::LoadU(d8, codes + p * 2 * kPanel));
    widen(hn::ShiftRight<1>(hn::ShiftLeft<8>(lanes)), even);
    widen(hn::ShiftRight<1>(lanes), odd);
  }
};

template <class Weights>
HWY_INLINE void prefetch_block(const Weights& w, int b, int blocks) {
  prefetch(reinterpret_cast<const std::uint8_t*>(w.codes) + std::int64_t{b} * Weights::kBlockBytes, blocks * Weights::kBlockBytes);
}

enum class Scaling { none, weight, both };

// What a tile of rows reads, at the chunk's first block.
struct TileRows {
  const float* values[kTileRows];
  const float* scales[kTileRows];  // Scaling::both only
};

// Fewer rows leave too few independent fma chains to hide their latency: then several blocks, which are independent, run side by side.
constexpr int interleaved_blocks(int rows) { return std::max(1, 8 / (rows * kVectors)); }

// Sums of kBlocks blocks (all of `length` inputs) from block b on.
template <int kRows, int kBlocks, class Weights>
HWY_INLINE void block_sums(const Weights& w, int b, int length, const float* const (&x)[kRows], VF (&sum)[kBlocks][kRows][kVectors]) {
  for (int i = 0; i < kBlocks; ++i) {
    for (int m = 0; m < kRows; ++m) {
      for (int v = 0; v < kVectors; ++v) sum[i][m][v] = hn::Zero(F32());
    }
  }
  VF even[kVectors], odd[kVectors];
  HWY_UNROLL(2)
  for (int p = 0; p < length / 2; ++p) {
    HWY_UNROLL(8)
    for (int i = 0; i < kBlocks; ++i) {
      w.pair((b + i) * kPairs + p, even, odd);
      HWY_UNROLL(8)
      for (int m = 0; m < kRows; ++m) {
        const VF value = hn::Set(F32(), x[m][i * kBlock + 2 * p]);
        for (int v = 0; v < kVectors; ++v) sum[i][m][v] = hn::MulAdd(even[v], value, sum[i][m][v]);
      }
      HWY_UNROLL(8)
      for (int m = 0; m < kRows; ++m) {
        const VF value = hn::Set(F32(), x[m][i * kBlock + 2 * p + 1]);
        for (int v = 0; v < kVectors; ++v) sum[i][m][v] = hn::MulAdd(odd[v], value, sum[i][m][v]);
      }
    }
  }
  if (length % 2 == 0) return;
  const int p = length / 2;
  for (int i = 0; i < kBlocks; ++i) {
    w.pair((b + i) * kPairs + p, even, odd);
    for (int m = 0; m < kRows; ++m) {
      const VF value = hn::Set(F32(), x[m][i * kBlock + 2 * p]);
      for (int v = 0; v < kVectors; ++v) sum[i][m][v] = hn::MulAdd(even[v], value, sum[i][m][v]);
    }
  }
}

template <int kRows, Scaling kScaling>
HWY_INLINE void add_block(const VF (&sum)[kRows][kVectors], const std::uint8_t* w_scales, int b, const TileRows& rows, float* c) {
  for (int m = 0; m < kRows; ++m) {
    float scale = 1.0F;
    if constexpr (kScaling != Scaling::none) scale = numerics::float_of_bits(static_cast<std::uint32_t>(w_scales[b]) << 23);
    if constexpr (kScaling == Scaling::both) scale *= rows.scales[m][b];
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + m * kPanel + v * kLanes;
      hn::Store(hn::MulAdd(sum[m][v], hn::Set(F32(), scale), hn::Load(F32(), out)), F32(), out);
    }
  }
}

// c += the blocks of one chunk; the last block has `last_length` inputs.
template <int kRows, Scaling kScaling, class Weights>
void float_tile(const Weights& w, int blocks, int last_length, const std::uint8_t* w_scales, const TileRows& rows, float* c) {
  constexpr int kSide = interleaved_blocks(kRows);
  const float* x[kRows];
  for (int m = 0; m < kRows; ++m) x[m] = rows.values[m];
  const int full = last_length == kBlock ? blocks : blocks - 1;
  int b = 0;
  for (; b + kSide <= full; b += kSide) {
    VF sum[kSide][kRows][kVectors];
    prefetch_block(w, b, kSide);
    block_sums<kRows, kSide>(w, b, kBlock, x, sum);
    for (int i = 0; i < kSide; ++i) add_block<kRows, kScaling>(sum[i], w_scales, b + i, rows, c);
    for (int m = 0; m < kRows; ++m) x[m] += kSide * kBlock;
  }
  for (; b < blocks; ++b) {
    VF sum[1][kRows][kVectors];
    block_sums<kRows, 1>(w, b, b < full ? kBlock : last_length, x, sum);
    add_block<kRows, kScaling>(sum[0], w_scales, b, rows, c);
    for (int m = 0; m < kRows; ++m) x[m] += kBlock;
  }
}

template <Scaling kScaling, class Weights>
void run_tile(int n_rows, const Weights& w, int blocks, int last_length, const std::uint8_t* w_scales, const TileRows& rows, float* c) {
  switch (n_rows) {
    case 1: return float_tile<1, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 2: return float_tile<2, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 3: return float_tile<3, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 4: return float_tile<4, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 5: return float_tile<5, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 6: return float_tile<6, kScaling>(w, blocks, last_length, w_scales, rows, c);
#if HWY_TARGET <= HWY_AVX3
    case 7: return float_tile<7, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 8: return float_tile<8, kScaling>(w, blocks, last_length, w_scales, rows, c);
#endif
    default: return;
  }
}

const float* widen_chunk(const FloatWeights& w, int, float*) { return w.codes; }

template <class Weights>
const float* widen_chunk(const Weights& w, int blocks, float* out) {
  for (int p = 0; p < blocks * kPairs; ++p) {
    VF even[kVectors], odd[kVectors];
    if (p % kPairs == 0) prefetch_block(w, p / kPairs, 1);
    w.pair(p, even, odd);
    for (int v = 0; v < kVectors; ++v) {
      hn::Store(even[v], F32(), out + p * 2 * kPanel + v * kLanes);
      hn::Store(odd[v], F32(), out + (p * 2 + 1) * kPanel + v * kLanes);
    }
  }
  return out;
}

template <class Weights>
auto weights_at(const std::uint8_t* codes) {
  return reinterpret_cast<decltype(Weights::codes)>(codes);
}

TileRows rows_of_tile(const LinearJob& job, std::int64_t row0, int n_rows, std::int64_t block0) {
  TileRows rows;
  for (int m = 0; m < n_rows; ++m) {
    const std::int64_t row = job.input_row(row0 + m);
    rows.values[m] = job.values + row * job.value_stride + block0 * kBlock;
    rows.scales[m] = job.scales == nullptr ? nullptr : job.scales + row * job.block_stride + block0;
  }
  return rows;
}

// One panel.  A single tile reads the packed weights directly; more tiles share a chunk of weights widened once.
template <Scaling kScaling, class Weights>
void float_panel(const LinearJob& job, const std::uint8_t* panel, const LinearUnit& unit, float* chunk, float* c) {
  const Tiles tiles(unit.n_rows);
  std::fill_n(c, unit.n_rows * kPanel, 0.0F);
  const std::uint8_t* codes = panel + job.layout.scale_bytes;
  const std::int64_t all_blocks = job.layout.blocks;
  const int last_length = static_cast<int>(job.k - (all_blocks - 1) * kBlock);
  if (tiles.count == 1) {
    return run_tile<kScaling>(unit.n_rows, Weights{weights_at<Weights>(codes)}, static_cast<int>(all_blocks), last_length, panel,
                              rows_of_tile(job, unit.row0, unit.n_rows, 0), c);
  }
  for (std::int64_t block0 = 0; block0 < all_blocks; block0 += kChunkBlocks) {
    const int blocks = static_cast<int>(std::min<std::int64_t>(kChunkBlocks, all_blocks - block0));
    const int length = block0 + blocks == all_blocks ? last_length : kBlock;
    const Weights packed{weights_at<Weights>(codes + block0 * job.layout.block_bytes)};
    const FloatWeights widened{widen_chunk(packed, blocks, chunk)};
    for (int t = 0; t < tiles.count; ++t) {
      run_tile<kScaling>(tiles.rows(t), widened, blocks, length, panel + block0,
                         rows_of_tile(job, unit.row0 + tiles.first(t), tiles.rows(t), block0), c + tiles.first(t) * kPanel);
    }
  }
}

}  // namespace

void float_unit(const LinearJob& job, const LinearUnit& unit) {
  alignas(64) float c[kMaxUnitRows * kPanel];
  alignas(64) float chunk[kChunkBlocks * kBlock * kPanel];
  const std::uint8_t* matrix = job.weights + unit.matrix * job.layout.panels * job.layout.panel_bytes;
  for (std::int64_t p = unit.panel_begin; p < unit.panel_end; ++p) {
    const std::uint8_t* panel = matrix + p * job.layout.panel_bytes;
    if (job.kind == WeightKind::f32) {
      float_panel<Scaling::none, FloatWeights>(job, panel, unit, chunk, c);
    } else if (job.kind == WeightKind::bf16) {
      float_panel<Scaling::none, Bf16Weights>(job, panel, unit, chunk, c);
    } else if (job.q8) {
      float_panel<Scaling::both, Fp8Weights<false>>(job, panel, unit, chunk, c);
    } else {
      float_panel<Scaling::weight, Fp8Weights<true>>(job, panel, unit, chunk, c);
    }
    store_panel(job, p, unit.row0, unit.n_rows, c);
  }
}

}  // namespace bathys::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace bathys::kernels {
HWY_EXPORT(float_unit);

void run_float_unit(const LinearJob& job, const LinearUnit& unit) { HWY_DYNAMIC_DISPATCH(float_unit)(job, unit); }

}  // namespace bathys::kernels
#endif  // HWY_ONCE
