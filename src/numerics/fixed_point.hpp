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

// The same number where |v| <= 2^(51-k), by operations that vectorize: added to 1.5 * 2^52 in double, v * 2^k is
// rounded to an integer as rint does it and left in the low bits.
template <int k>
BATHYS_FUNCTION std::int64_t to_fixed_small(float v) {
  constexpr double unit = static_cast<double>(std::uint64_t{1} << k);
  constexpr double shift = 0x1.8p52;
  return static_cast<std::int64_t>(bits_of_double(static_cast<double>(v) * unit + shift) - bits_of_double(shift));
}

// What a sum of such integers stands for.
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
