// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "numerics/bf16.hpp"
#include "numerics/reduce.hpp"

#include <cmath>

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__) && !defined(__CUDACC__)
#define BATHYS_LANES_AVX2 1
#include <immintrin.h>
#endif

// The 16 partial sums of numerics/reduce.hpp as one value, so that a tile of them stays in registers.  Two AVX2
// registers where the host has them, an array elsewhere; the same bits either way, because each lane does the same fma
// and the tree is the same.
#if defined(__CUDA_ARCH__)
#define BATHYS_UNROLL _Pragma("unroll")
#elif defined(__CUDACC__)
#define BATHYS_UNROLL
#else
#define BATHYS_UNROLL _Pragma("GCC unroll 16")
#endif

namespace bathys::kernels {

using numerics::bf16;
using numerics::kLanes;

#if defined(BATHYS_LANES_AVX2)

struct Lanes {
  __m256 lo = _mm256_setzero_ps();
  __m256 hi = _mm256_setzero_ps();
};

inline Lanes load_lanes(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
inline Lanes load_lanes(const bf16* p) {
  const __m256i v = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  const auto widen = [](__m128i half) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
  };
  return {widen(_mm256_castsi256_si128(v)), widen(_mm256_extracti128_si256(v, 1))};
}
inline Lanes broadcast_lanes(float v) { return {_mm256_set1_ps(v), _mm256_set1_ps(v)}; }
inline void store_lanes(float* p, const Lanes& v) {
  _mm256_storeu_ps(p, v.lo);
  _mm256_storeu_ps(p + 8, v.hi);
}
inline Lanes fma_lanes(const Lanes& a, const Lanes& b, const Lanes& c) {
  return {_mm256_fmadd_ps(a.lo, b.lo, c.lo), _mm256_fmadd_ps(a.hi, b.hi, c.hi)};
}
inline Lanes multiply_lanes(const Lanes& a, const Lanes& b) {
  return {_mm256_mul_ps(a.lo, b.lo), _mm256_mul_ps(a.hi, b.hi)};
}
inline Lanes add_lanes(const Lanes& a, const Lanes& b) {
  return {_mm256_add_ps(a.lo, b.lo), _mm256_add_ps(a.hi, b.hi)};
}

// The fixed tree of numerics::tree16.
inline float tree_lanes(const Lanes& v) {
  const __m256 eight = _mm256_add_ps(v.lo, v.hi);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
}

#else

struct Lanes {
  float lane[kLanes] = {};
};

template <class T>
BATHYS_FUNCTION Lanes load_lanes(const T* p) {
  Lanes v;
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) v.lane[i] = static_cast<float>(p[i]);
  return v;
}
BATHYS_FUNCTION Lanes broadcast_lanes(float value) {
  Lanes v;
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) v.lane[i] = value;
  return v;
}
BATHYS_FUNCTION void store_lanes(float* p, const Lanes& v) {
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) p[i] = v.lane[i];
}
BATHYS_FUNCTION Lanes fma_lanes(const Lanes& a, const Lanes& b, Lanes c) {
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) c.lane[i] = fmaf(a.lane[i], b.lane[i], c.lane[i]);
  return c;
}
BATHYS_FUNCTION Lanes multiply_lanes(Lanes a, const Lanes& b) {
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) a.lane[i] *= b.lane[i];
  return a;
}
BATHYS_FUNCTION Lanes add_lanes(Lanes a, const Lanes& b) {
  BATHYS_UNROLL
  for (int i = 0; i < kLanes; ++i) a.lane[i] += b.lane[i];
  return a;
}
BATHYS_FUNCTION float tree_lanes(Lanes v) { return numerics::tree16(v.lane); }

#endif

// The first `count` of 16 values; missing lanes are +0, and fma(+0, +0, c) leaves a partial sum that started at +0 as
// it is.
template <class T>
BATHYS_FUNCTION Lanes load_lanes(const T* p, std::int64_t count) {
  if (count >= kLanes) return load_lanes(p);
  float padded[kLanes] = {};
  for (int i = 0; i < count; ++i) padded[i] = static_cast<float>(p[i]);
  return load_lanes(padded);
}

// Rounds the lanes to bf16, as numerics::bf16_bits does.
BATHYS_FUNCTION void store_lanes(bf16* p, const Lanes& v) {
#if defined(BATHYS_LANES_AVX2)
  const auto round = [](__m256 x) {
    const __m256i u = _mm256_castps_si256(x);
    const __m256i upper = _mm256_srli_epi32(u, 16);
    const __m256i odd = _mm256_and_si256(upper, _mm256_set1_epi32(1));
    const __m256i rounded =
        _mm256_srli_epi32(_mm256_add_epi32(u, _mm256_add_epi32(odd, _mm256_set1_epi32(0x7fff))), 16);
    const __m256i quiet = _mm256_or_si256(upper, _mm256_set1_epi32(0x40));
    return _mm256_blendv_epi8(rounded, quiet, _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_UNORD_Q)));
  };
  const __m256i packed = _mm256_permute4x64_epi64(_mm256_packus_epi32(round(v.lo), round(v.hi)), 0xd8);
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p), packed);
#else
  for (int i = 0; i < kLanes; ++i) p[i] = bf16(v.lane[i]);
#endif
}

// The first `count` of them.
BATHYS_FUNCTION void store_lanes(bf16* p, const Lanes& v, std::int64_t count) {
  if (count >= kLanes) {
    store_lanes(p, v);
    return;
  }
  bf16 all[kLanes];
  store_lanes(all, v);
  for (int i = 0; i < count; ++i) p[i] = all[i];
}

// A tile of dot products a_i . b_j, each exactly numerics::dot16.   a [kA rows, stride_a]   b [kB rows, stride_b]
// out[i][j]
template <int kA, int kB, class A, class B>
BATHYS_FUNCTION void dot_tile(const A* a, std::int64_t stride_a, const B* b, std::int64_t stride_b, std::int64_t n,
                              float (&out)[kA][kB]) {
  Lanes sum[kA][kB];
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t c = 0; c < whole; c += kLanes) {
    Lanes right[kB];
    BATHYS_UNROLL
    for (int j = 0; j < kB; ++j) right[j] = load_lanes(b + j * stride_b + c);
    BATHYS_UNROLL
    for (int i = 0; i < kA; ++i) {
      const Lanes left = load_lanes(a + i * stride_a + c);
      BATHYS_UNROLL
      for (int j = 0; j < kB; ++j) sum[i][j] = fma_lanes(left, right[j], sum[i][j]);
    }
  }
  if (whole < n) {
    BATHYS_UNROLL
    for (int i = 0; i < kA; ++i) {
      const Lanes left = load_lanes(a + i * stride_a + whole, n - whole);
      BATHYS_UNROLL
      for (int j = 0; j < kB; ++j)
        sum[i][j] = fma_lanes(left, load_lanes(b + j * stride_b + whole, n - whole), sum[i][j]);
    }
  }
  BATHYS_UNROLL
  for (int i = 0; i < kA; ++i) {
    BATHYS_UNROLL
    for (int j = 0; j < kB; ++j) out[i][j] = tree_lanes(sum[i][j]);
  }
}

// numerics::dot16 of two rows.
template <class A, class B>
BATHYS_FUNCTION float dot_row(const A* a, const B* b, std::int64_t n) {
  float out[1][1];
  dot_tile<1, 1>(a, 0, b, 0, n, out);
  return out[0][0];
}

}  // namespace bathys::kernels
