// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bits.hpp"

#include <cmath>
#include <cstdint>

// The one order of every float32 reduction outside the linears: 16 partial sums by index mod 16, each in ascending
// order, then one fixed tree.  Sixteen lanes fill any SIMD width, and no width, thread count or batch changes the
// order.
namespace bathys::numerics {

inline constexpr int kLanes = 16;

BATHYS_FUNCTION float tree16(float* lane) {
  for (int half = kLanes / 2; half > 0; half /= 2) {
    for (int i = 0; i < half; ++i) lane[i] += lane[i + half];
  }
  return lane[0];
}

// sum_i term(i), i < n.
template <class Term>
BATHYS_FUNCTION float sum16(std::int64_t n, Term&& term) {
  float lane[kLanes] = {};
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] += term(i + j);
  }
  for (std::int64_t i = whole; i < n; ++i) lane[i - whole] += term(i);
  return tree16(lane);
}

// sum_i a(i) * b(i) with one fma a term.
template <class A, class B>
BATHYS_FUNCTION float dot16(std::int64_t n, A&& a, B&& b) {
  float lane[kLanes] = {};
  const std::int64_t whole = n / kLanes * kLanes;
  for (std::int64_t i = 0; i < whole; i += kLanes) {
    for (int j = 0; j < kLanes; ++j) lane[j] = fmaf(a(i + j), b(i + j), lane[j]);
  }
  for (std::int64_t i = whole; i < n; ++i) lane[i - whole] = fmaf(a(i), b(i), lane[i - whole]);
  return tree16(lane);
}

}  // namespace bathys::numerics
