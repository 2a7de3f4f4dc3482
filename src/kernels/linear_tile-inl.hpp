// SPDX-License-Identifier: Apache-2.0
// Vector types and small helpers of the linears' SIMD bodies; included once per instruction set (Highway's
// foreach_target).

#if defined(BATHYS_KERNELS_LINEAR_TILE_INL_HPP_) == defined(HWY_TARGET_TOGGLE)
#ifdef BATHYS_KERNELS_LINEAR_TILE_INL_HPP_
#undef BATHYS_KERNELS_LINEAR_TILE_INL_HPP_
#else
#define BATHYS_KERNELS_LINEAR_TILE_INL_HPP_
#endif

#include "kernels/linear_job.hpp"

#include <algorithm>
#include <cstdint>
#include <cstring>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace bathys::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

static_assert(HWY_TARGET <= HWY_AVX2, "the linears' bodies are written for AVX2 and newer");

using F32 = hn::CappedTag<float, kPanel>;
using I32 = hn::Rebind<std::int32_t, F32>;
using U32 = hn::Rebind<std::uint32_t, F32>;
using I16 = hn::Repartition<std::int16_t, F32>;
using U16 = hn::Repartition<std::uint16_t, F32>;
using U8 = hn::Repartition<std::uint8_t, F32>;
using VF = hn::Vec<F32>;
using VI32 = hn::Vec<I32>;
using VI16 = hn::Vec<I16>;
using VU8 = hn::Vec<U8>;

constexpr int kLanes = static_cast<int>(hn::MaxLanes(F32()));
constexpr int kVectors = kPanel / kLanes;  // vectors that hold a panel's 16 rows
constexpr int kPrefetchBytes = 2048;       // how far ahead of the weights being read

// Panels that take their turn at one chunk of inputs, which comes from L2 then instead of L3.
constexpr int kPanelGroup = 4;

// Keeps the compiler from re-associating a chain of integer additions, which would need more registers than there are.
template <class V>
HWY_INLINE void pin(V& v) {
  asm("" : "+v"(v.raw));
}

HWY_INLINE VI32 broadcast_pair(const std::int16_t* p) {
  std::int32_t pair;
  std::memcpy(&pair, p, sizeof pair);
  return hn::Set(I32(), pair);
}

// sum + a[2i] b[2i] + a[2i+1] b[2i+1] in int32.
HWY_INLINE VI32 multiply_add_pairs(VI16 a, VI16 b, VI32 sum) {
#if HWY_TARGET <= HWY_AVX3_DL
  // Every CPU that Highway puts in this class has AVX512-VNNI, but this Highway does not name it to the compiler.
  asm("vpdpwssd %2, %1, %0" : "+v"(sum.raw) : "v"(a.raw), "v"(b.raw));
  return sum;
#elif HWY_TARGET <= HWY_AVX3
  sum = hn::Add(sum, VI32{_mm512_madd_epi16(a.raw, b.raw)});
  pin(sum);
  return sum;
#else
  sum = hn::Add(sum, VI32{_mm256_madd_epi16(a.raw, b.raw)});
  pin(sum);
  return sum;
#endif
}

// sum + a[2i] b[2i] + a[2i+1] b[2i+1] in int16, a unsigned and b signed bytes; the caller keeps it in range.
HWY_INLINE VI16 multiply_add_bytes(VU8 a, VI32 b, VI16 sum) {
#if HWY_TARGET <= HWY_AVX3
  sum = hn::Add(sum, VI16{_mm512_maddubs_epi16(a.raw, b.raw)});
#else
  sum = hn::Add(sum, VI16{_mm256_maddubs_epi16(a.raw, b.raw)});
#endif
  pin(sum);
  return sum;
}

// 2^(code - 127) of 16 scale codes; codes 0 and 255 do not occur in packed weights.
HWY_INLINE VF load_scales(const std::uint8_t* codes) {
  const hn::Rebind<std::uint8_t, F32> d8;
  return hn::BitCast(F32(), hn::ShiftLeft<23>(hn::PromoteTo(U32(), hn::LoadU(d8, codes))));
}

HWY_INLINE void prefetch(const std::uint8_t* p, int bytes) {
  for (int at = 0; at < bytes; at += 64) hwy::Prefetch(p + kPrefetchBytes + at);
}

// Writes one panel of sums c [n_rows][16] to the output.
HWY_INLINE void store_panel(const LinearJob& job, std::int64_t panel, const LinearUnit& unit, const float* c) {
  const std::int64_t column = panel * kPanel;
  const int columns = static_cast<int>(std::min<std::int64_t>(kPanel, job.n - column));
  for (int m = 0; m < unit.n_rows; ++m, c += kPanel) {
    const std::int64_t at = (unit.row0 + m) * job.y_stride + column;
    if (job.y_f32 != nullptr) {
      std::memcpy(job.y_f32 + at, c, static_cast<std::size_t>(columns) * sizeof(float));
      continue;
    }
    bf16 rounded[kPanel];
    for (int r = 0; r < kPanel; ++r) rounded[r] = bf16(c[r]);
    std::memcpy(static_cast<void*>(job.y_bf16 + at), rounded, static_cast<std::size_t>(columns) * sizeof(bf16));
  }
}

// Cuts rows into tiles of nearly equal height, at most `most`.
struct Tiles {
  Tiles(int all_rows, int most)
      : count((all_rows + most - 1) / most), height(all_rows / std::max(count, 1)), taller(all_rows - count * height) {}
  [[nodiscard]] int first(int t) const { return t * height + std::min(t, taller); }
  [[nodiscard]] int rows(int t) const { return height + (t < taller ? 1 : 0); }
  int count, height, taller;  // the first `taller` tiles have one row more
};

}  // namespace bathys::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
