// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bits.hpp"

#include <cmath>
#include <cstdint>

// Sums that cross ranks: 64-bit fixed point over grains that no layout cuts.  Integers associate, so any number of
// ranks, in any order, gives the same bits.
namespace bathys::numerics {

inline constexpr int kExpertBits = 36;  // experts and output groups: units of 2^-36
inline constexpr int kExpBits = 44;     // sums of exp(l - max): units of 2^-44

// int64(round(v * 2^k)), ties to even.  The caller has checked grain_fits.
template <int k>
BATHYS_FUNCTION std::int64_t to_fixed(float v) {
  constexpr double unit = static_cast<double>(std::uint64_t{1} << k);
  return static_cast<std::int64_t>(rint(static_cast<double>(v) * unit));
}

template <int k>
BATHYS_FUNCTION double from_fixed(std::int64_t sum) {
  constexpr double unit = 1.0 / static_cast<double>(std::uint64_t{1} << k);
  return static_cast<double>(sum) * unit;
}

// Whether `grains` grains of this size cannot overflow: |v| < 2^(62-k) / grains; false for NaN and infinity.
template <int k>
BATHYS_FUNCTION bool grain_fits(float v, int grains) {
  constexpr double limit = static_cast<double>(std::uint64_t{1} << (62 - k));
  return static_cast<double>(abs_float(v)) * grains < limit;
}

}  // namespace bathys::numerics
