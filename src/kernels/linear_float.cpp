// SPDX-License-Identifier: Apache-2.0
// FP8, bf16 and fp32 weights on the host: fp32 fma, sequential in k inside a block, one fma per block
// (docs/numerics.md, "Linear layers").  Lanes are output rows, so every instruction set computes the same numbers.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/linear_float.cpp"
// clang-format off: foreach_target includes this file again for each instruction set, so it must come first
#include <hwy/foreach_target.h>
// clang-format on

#include "kernels/linear_tile-inl.hpp"

#include <type_traits>

HWY_BEFORE_NAMESPACE();
namespace bathys::kernels::HWY_NAMESPACE {
namespace {

constexpr int kChunkBlocks = 8;  // blocks widened at a time: 16 KiB of fp32, which stay in L1
constexpr int kPairs = kBlock / 2;
constexpr int kTileRows = kVectors == 1 ? 8 : 6;  // sums, weights and a broadcast fill the registers

// Weights of a panel from some block on.  fp32 yields the 16 rows of input k; the others those of the even or the odd
// input of pair p.
template <bool kFromMemory>
struct FloatWeights {
  const float* codes;  // [k][16]
  static constexpr int kBlockBytes = kBlock * kPanel * 4;
  static constexpr bool kInputByInput = true;
  HWY_INLINE void input(std::int64_t k, VF (&out)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) out[v] = hn::LoadU(F32(), codes + k * kPanel + v * kLanes);
  }
};

struct Bf16Weights {
  const std::uint8_t* codes;  // [k/2][16] 32-bit lanes: the even input in the lower half
  static constexpr int kBlockBytes = kBlock * kPanel * 2;
  static constexpr bool kInputByInput = false;
  HWY_INLINE void even(std::int64_t p, VF (&out)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) out[v] = hn::BitCast(F32(), hn::ShiftLeft<16>(lanes(p, v)));
  }
  HWY_INLINE void odd(std::int64_t p, VF (&out)[kVectors]) const {
    for (int v = 0; v < kVectors; ++v) out[v] = hn::BitCast(F32(), hn::And(lanes(p, v), hn::Set(U32(), 0xffff0000U)));
  }
  HWY_INLINE hn::Vec<U32> lanes(std::int64_t p, int v) const {
    return hn::BitCast(U32(), hn::LoadU(U8(), codes + (p * kPanel + v * kLanes) * 4));
  }
};

// An E4M3 code moved to bits 7..13 and 15 is an fp16 number of 2^-8 its value, subnormals included.  kExact multiplies
// by 2^8; otherwise the activation carries that factor.
template <bool kExact>
struct Fp8Weights {
  const std::uint8_t* codes;  // [k/2][16] 16-bit lanes: the even input in the lower half
  static constexpr int kBlockBytes = kBlock * kPanel;
  static constexpr bool kInputByInput = false;

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
  HWY_INLINE void even(std::int64_t p, VF (&out)[kVectors]) const {
    widen(hn::ShiftRight<1>(hn::ShiftLeft<8>(lanes(p))), out);
  }
  HWY_INLINE void odd(std::int64_t p, VF (&out)[kVectors]) const { widen(hn::ShiftRight<1>(lanes(p)), out); }
  HWY_INLINE hn::Vec<Lanes> lanes(std::int64_t p) const {
    const hn::Repartition<std::uint8_t, Lanes> d8;
    return hn::BitCast(Lanes(), hn::LoadU(d8, codes + p * 2 * kPanel));
  }
};

template <class Weights>
HWY_INLINE void prefetch_block(const Weights& w, int b, int blocks) {
  if constexpr (std::is_same_v<Weights, FloatWeights<false>>) return;  // a widened chunk is in L1
  prefetch(reinterpret_cast<const std::uint8_t*>(w.codes) + std::int64_t{b} * Weights::kBlockBytes,
           blocks * Weights::kBlockBytes);
}

enum class Scaling { none, weight, both };

// What a tile of rows reads, at the chunk's first block.
struct TileRows {
  const float* values[kTileRows];
  const float* scales[kTileRows];  // Scaling::both only
};

// Fewer rows leave too few independent fma chains to hide their latency: then several blocks, which are independent,
// run side by side.
constexpr int interleaved_blocks(int rows) { return std::max(1, 8 / (rows * kVectors)); }

template <int kRows>
HWY_INLINE void add_input(const VF (&weights)[kVectors], const float* const (&x)[kRows], int k,
                          VF (&sum)[kRows][kVectors]) {
  HWY_UNROLL(16)
  for (int m = 0; m < kRows; ++m) {
    const VF value = hn::Set(F32(), x[m][k]);
    for (int v = 0; v < kVectors; ++v) sum[m][v] = hn::MulAdd(weights[v], value, sum[m][v]);
  }
}

// Sums of kBlocks blocks (all of `length` inputs) from block b on.
template <int kRows, int kBlocks, class Weights>
HWY_INLINE void block_sums(const Weights& w, int b, int length, const float* const (&x)[kRows],
                           VF (&sum)[kBlocks][kRows][kVectors]) {
  for (int i = 0; i < kBlocks; ++i) {
    for (int m = 0; m < kRows; ++m) {
      for (int v = 0; v < kVectors; ++v) sum[i][m][v] = hn::Zero(F32());
    }
  }
  VF weights[kVectors];
  if constexpr (Weights::kInputByInput) {
    HWY_UNROLL(1)  // mixing the inputs of an unrolled loop, the compiler would run out of registers
    for (int k = 0; k < length; ++k) {
      for (int i = 0; i < kBlocks; ++i) {
        w.input((b + i) * kBlock + k, weights);
        add_input<kRows>(weights, x, i * kBlock + k, sum[i]);
      }
    }
  } else {
    for (int p = 0; p < length / 2; ++p) {
      HWY_UNROLL(8)
      for (int i = 0; i < kBlocks; ++i) {
        w.even((b + i) * kPairs + p, weights);
        add_input<kRows>(weights, x, i * kBlock + 2 * p, sum[i]);
        w.odd((b + i) * kPairs + p, weights);
        add_input<kRows>(weights, x, i * kBlock + 2 * p + 1, sum[i]);
      }
    }
    for (int i = 0; length % 2 != 0 && i < kBlocks; ++i) {
      w.even((b + i) * kPairs + length / 2, weights);
      add_input<kRows>(weights, x, i * kBlock + length - 1, sum[i]);
    }
  }
}

template <int kRows, Scaling kScaling>
HWY_INLINE void add_block(const VF (&sum)[kRows][kVectors], const std::uint8_t* w_scales, int b, const TileRows& rows,
                          float* c) {
  for (int m = 0; m < kRows; ++m) {
    for (int v = 0; v < kVectors; ++v) {
      float* out = c + m * kPanel + v * kLanes;
      VF acc = hn::Load(F32(), out);
      if constexpr (kScaling == Scaling::none) {
        acc = hn::Add(sum[m][v], acc);  // fma with a scale of 1
      } else {
        float scale = numerics::float_of_bits(static_cast<std::uint32_t>(w_scales[b]) << 23);
        if constexpr (kScaling == Scaling::both) scale *= rows.scales[m][b];
        acc = hn::MulAdd(sum[m][v], hn::Set(F32(), scale), acc);
      }
      hn::Store(acc, F32(), out);
    }
  }
}

// c += the blocks of one chunk; the last block has `last_length` inputs.
template <int kRows, Scaling kScaling, class Weights>
void float_tile(Weights w, int blocks, int last_length, const std::uint8_t* w_scales, const TileRows& rows, float* c) {
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
void run_tile(int n_rows, Weights w, int blocks, int last_length, const std::uint8_t* w_scales, const TileRows& rows,
              float* c) {
  switch (n_rows) {
    case 1:
      return float_tile<1, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 2:
      return float_tile<2, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 3:
      return float_tile<3, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 4:
      return float_tile<4, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 5:
      return float_tile<5, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 6:
      return float_tile<6, kScaling>(w, blocks, last_length, w_scales, rows, c);
#if HWY_TARGET <= HWY_AVX3
    case 7:
      return float_tile<7, kScaling>(w, blocks, last_length, w_scales, rows, c);
    case 8:
      return float_tile<8, kScaling>(w, blocks, last_length, w_scales, rows, c);
#endif
    default:
      return;
  }
}

const float* widen_chunk(const FloatWeights<true>& w, int, float*) { return w.codes; }

template <class Weights>
const float* widen_chunk(const Weights& w, int blocks, float* out) {
  for (int p = 0; p < blocks * kPairs; ++p) {
    VF even[kVectors], odd[kVectors];
    if (p % kPairs == 0) prefetch_block(w, p / kPairs, 1);
    w.even(p, even);
    w.odd(p, odd);
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

// Inputs of the block before `end`: the matrix's last one may be shorter.
int last_length(const LinearJob& job, std::int64_t end) {
  return static_cast<int>(std::min<std::int64_t>(kBlock, job.k - (end - 1) * kBlock));
}

TileRows rows_of_tile(const LinearJob& job, std::int64_t row0, int n_rows, std::int64_t block0) {
  TileRows rows{};
  for (int m = 0; m < n_rows; ++m) {
    const std::int64_t row = job.input_row(row0 + m);
    rows.values[m] = job.values + row * job.value_stride + block0 * kBlock;
    rows.scales[m] = job.scales == nullptr ? nullptr : job.scales + row * job.block_stride + block0;
  }
  return rows;
}

// c += one chunk of one panel, for all rows of the unit: the weights are widened once for all tiles.
template <Scaling kScaling, class Weights>
void float_chunk(const LinearJob& job, const std::uint8_t* panel, const LinearUnit& unit, std::int64_t block0,
                 float* buffer, float* c) {
  const Tiles tiles(unit.n_rows, kTileRows);
  const int blocks = static_cast<int>(std::min<std::int64_t>(kChunkBlocks, job.layout.blocks - block0));
  const Weights packed{weights_at<Weights>(panel + job.layout.scale_bytes + block0 * job.layout.block_bytes)};
  const FloatWeights<false> widened{widen_chunk(packed, blocks, buffer)};
  const int length = last_length(job, block0 + blocks);
  for (int t = 0; t < tiles.count; ++t) {
    const TileRows rows = rows_of_tile(job, unit.row0 + tiles.first(t), tiles.rows(t), block0);
    float* sums = c + tiles.first(t) * kPanel;
    if constexpr (std::is_same_v<Weights, FloatWeights<true>>) {
      if (t == 0) {  // fp32 is not widened: the first tile brings it into L1
        run_tile<kScaling>(tiles.rows(t), packed, blocks, length, panel + block0, rows, sums);
        continue;
      }
    }
    run_tile<kScaling>(tiles.rows(t), widened, blocks, length, panel + block0, rows, sums);
  }
}

// A single tile of rows reads the packed weights directly.
template <Scaling kScaling, class Weights>
void few_rows(const LinearJob& job, const std::uint8_t* matrix, const LinearUnit& unit) {
  alignas(64) float c[kTileRows * kPanel];
  const TileRows rows = rows_of_tile(job, unit.row0, unit.n_rows, 0);
  const int blocks = static_cast<int>(job.layout.blocks);
  for (std::int64_t p = unit.panel_begin; p < unit.panel_end; ++p) {
    const std::uint8_t* panel = matrix + p * job.layout.panel_bytes;
    std::fill_n(c, unit.n_rows * kPanel, 0.0F);
    run_tile<kScaling>(unit.n_rows, Weights{weights_at<Weights>(panel + job.layout.scale_bytes)}, blocks,
                       last_length(job, job.layout.blocks), panel, rows, c);
    store_panel(job, p, unit, c);
  }
}

template <Scaling kScaling, class Weights>
void many_rows(const LinearJob& job, const std::uint8_t* matrix, const LinearUnit& unit) {
  alignas(64) float c[kPanelGroup][kMaxUnitRows * kPanel];
  alignas(64) float buffer[kChunkBlocks * kBlock * kPanel];
  for (std::int64_t p0 = unit.panel_begin; p0 < unit.panel_end; p0 += kPanelGroup) {
    const int panels = static_cast<int>(std::min<std::int64_t>(kPanelGroup, unit.panel_end - p0));
    for (int i = 0; i < panels; ++i) std::fill_n(c[i], unit.n_rows * kPanel, 0.0F);
    for (std::int64_t block0 = 0; block0 < job.layout.blocks; block0 += kChunkBlocks) {
      for (int i = 0; i < panels; ++i) {
        float_chunk<kScaling, Weights>(job, matrix + (p0 + i) * job.layout.panel_bytes, unit, block0, buffer, c[i]);
      }
    }
    for (int i = 0; i < panels; ++i) store_panel(job, p0 + i, unit, c[i]);
  }
}

template <Scaling kScaling, class Weights>
void run_unit(const LinearJob& job, const LinearUnit& unit) {
  const std::uint8_t* matrix = job.weights + unit.matrix * job.layout.panels * job.layout.panel_bytes;
  if (unit.n_rows <= kTileRows) {
    few_rows<kScaling, Weights>(job, matrix, unit);
  } else {
    many_rows<kScaling, Weights>(job, matrix, unit);
  }
}

}  // namespace

void float_unit(const LinearJob& job, const LinearUnit& unit) {
  if (job.kind == WeightKind::f32) {
    run_unit<Scaling::none, FloatWeights<true>>(job, unit);
  } else if (job.kind == WeightKind::bf16) {
    run_unit<Scaling::none, Bf16Weights>(job, unit);
  } else if (job.q8) {
    run_unit<Scaling::both, Fp8Weights<false>>(job, unit);
  } else {
    run_unit<Scaling::weight, Fp8Weights<true>>(job, unit);
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
