// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/bits.hpp"

#include <cmath>
#include <cstdint>

// The program's own elementary functions: libm picks variants by CPU, and a score may not depend on that.  Only +, -,
// *, /, fma, sqrt and rint are used, which IEEE 754 fixes.  Errors stated are against the exact value (tests/numerics).
namespace bathys::numerics {

namespace detail {
inline constexpr double kLog2E = 1.4426950408889634074;
inline constexpr double kLn2Hi = 6.93147180369123816490e-01;  // upper 33 bits: n * kLn2Hi is exact for |n| < 2^20
inline constexpr double kLn2Lo = 1.90821492927058770002e-10;

BATHYS_FUNCTION double power_of_two(std::int64_t n) {
  return double_of_bits(static_cast<std::uint64_t>(n + 1023) << 52);
}
}  // namespace detail

// exp in double, relative error below 1e-15; 0 below -745.2, infinity above 709.8.
BATHYS_FUNCTION double exp_double(double x) {
  if (x != x) return x;
  if (x > 709.79) return double_of_bits(0x7ff0000000000000ULL);
  if (x < -745.2) return 0.0;
  const double n = rint(x * detail::kLog2E);
  const double r = fma(-n, detail::kLn2Lo, fma(-n, detail::kLn2Hi, x));
  // Taylor series of exp on |r| <= ln2/2: the first dropped term is below 1e-18.
  double p = 1.0 / 6227020800.0;
  p = fma(p, r, 1.0 / 479001600.0);
  p = fma(p, r, 1.0 / 39916800.0);
  p = fma(p, r, 1.0 / 3628800.0);
  p = fma(p, r, 1.0 / 362880.0);
  p = fma(p, r, 1.0 / 40320.0);
  p = fma(p, r, 1.0 / 5040.0);
  p = fma(p, r, 1.0 / 720.0);
  p = fma(p, r, 1.0 / 120.0);
  p = fma(p, r, 1.0 / 24.0);
  p = fma(p, r, 1.0 / 6.0);
  p = fma(p, r, 0.5);
  p = fma(p, r, 1.0);
  p = fma(p, r, 1.0);
  const auto whole = static_cast<std::int64_t>(n);
  const std::int64_t half = whole / 2;  // two steps, so that subnormal results round once
  return p * detail::power_of_two(half) * detail::power_of_two(whole - half);
}

// Natural logarithm in double, relative error below 1e-15; log(0) = -infinity, negative or NaN gives NaN.
BATHYS_FUNCTION double log_double(double x) {
  if (x != x || x < 0) return double_of_bits(0x7ff8000000000000ULL);
  if (x == 0) return double_of_bits(0xfff0000000000000ULL);
  std::uint64_t u = bits_of_double(x);
  if (u == 0x7ff0000000000000ULL) return x;
  std::int64_t e = 0;
  if (u < 0x0010000000000000ULL) {  // subnormal
    u = bits_of_double(x * 0x1p54);
    e = -54;
  }
  e += static_cast<std::int64_t>(u >> 52) - 1023;
  double m = double_of_bits((u & 0x000fffffffffffffULL) | 0x3ff0000000000000ULL);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    e += 1;
  }
  // log m = 2 atanh(f), f = (m-1)/(m+1), |f| <= 0.1716: terms to f^23.
  const double f = (m - 1.0) / (m + 1.0);
  const double s = f * f;
  double p = 1.0 / 23.0;
  p = fma(p, s, 1.0 / 21.0);
  p = fma(p, s, 1.0 / 19.0);
  p = fma(p, s, 1.0 / 17.0);
  p = fma(p, s, 1.0 / 15.0);
  p = fma(p, s, 1.0 / 13.0);
  p = fma(p, s, 1.0 / 11.0);
  p = fma(p, s, 1.0 / 9.0);
  p = fma(p, s, 1.0 / 7.0);
  p = fma(p, s, 1.0 / 5.0);
  p = fma(p, s, 1.0 / 3.0);
  const double tail = 2.0 * f * s * p;
  const auto n = static_cast<double>(e);
  return fma(n, detail::kLn2Hi, fma(n, detail::kLn2Lo, tail) + 2.0 * f);
}

// log(1 + x) for x > -1 with small relative error near 0.
BATHYS_FUNCTION double log1p_double(double x) {
  const double u = 1.0 + x;
  if (u == 1.0) return x;
  if (!(u < 1e300)) return log_double(u);
  return log_double(u) * (x / (u - 1.0));
}

// sin and cos in double for |x| up to 2^26, absolute error below 1e-15: reduction by pi/2 in three parts with fma.
BATHYS_FUNCTION void sincos_double(double x, double& sine, double& cosine) {
  const double n = rint(x * 0.63661977236758134308);
  double r = fma(-n, 1.5707963267948965580, x);
  r = fma(-n, 6.1232339957367660359e-17, r);
  r = fma(-n, -1.4973849048591832570e-33, r);
  const double s = r * r;
  double ps = -1.0 / 355687428096000.0;
  ps = fma(ps, s, 1.0 / 1307674368000.0);
  ps = fma(ps, -s, 1.0 / 6227020800.0);
  ps = fma(ps, -s, 1.0 / 39916800.0);
  ps = fma(ps, -s, 1.0 / 362880.0);
  ps = fma(ps, -s, 1.0 / 5040.0);
  ps = fma(ps, -s, 1.0 / 120.0);
  ps = fma(ps, -s, 1.0 / 6.0);
  const double sin_r = fma(-r * s, ps, r);
  double pc = 1.0 / 6402373705728000.0;
  pc = fma(pc, -s, 1.0 / 20922789888000.0);
  pc = fma(pc, -s, 1.0 / 87178291200.0);
  pc = fma(pc, -s, 1.0 / 479001600.0);
  pc = fma(pc, -s, 1.0 / 3628800.0);
  pc = fma(pc, -s, 1.0 / 40320.0);
  pc = fma(pc, -s, 1.0 / 720.0);
  pc = fma(pc, -s, 1.0 / 24.0);
  pc = fma(pc, -s, 0.5);
  const double cos_r = fma(-s, pc, 1.0);
  const auto quadrant = static_cast<std::int64_t>(n) & 3;
  const double a = (quadrant & 1) != 0 ? cos_r : sin_r;
  const double b = (quadrant & 1) != 0 ? sin_r : cos_r;
  sine = (quadrant & 2) != 0 ? -a : a;
  cosine = quadrant == 1 || quadrant == 2 ? -b : b;
}

// exp in float32, at most 1 ulp off (subnormal results included); 0 below -103.98, infinity above 88.73.
BATHYS_FUNCTION float exp_float(float x) {
  const float bounded = x > 89.0F ? 89.0F : x < -105.0F ? -105.0F : x;  // NaN passes through both comparisons
  const float n = rintf(bounded * 1.44269504F);
  float r = fmaf(-n, 0.693145752F, bounded);
  r = fmaf(-n, 1.42860677e-6F, r);
  float p = 1.0F / 40320.0F;
  p = fmaf(p, r, 1.0F / 5040.0F);
  p = fmaf(p, r, 1.0F / 720.0F);
  p = fmaf(p, r, 1.0F / 120.0F);
  p = fmaf(p, r, 1.0F / 24.0F);
  p = fmaf(p, r, 1.0F / 6.0F);
  p = fmaf(p, r, 0.5F);
  p = fmaf(p * r, r, r) + 1.0F;
  if (x != x) return x;
  const auto whole = static_cast<std::int32_t>(n);
  const std::int32_t half = whole / 2;
  return p * float_of_bits(static_cast<std::uint32_t>(half + 127) << 23) *
         float_of_bits(static_cast<std::uint32_t>(whole - half + 127) << 23);
}

// 1 / (1 + exp(-x)).
BATHYS_FUNCTION float sigmoid(float x) { return 1.0F / (1.0F + exp_float(-x)); }

// x * sigmoid(x) as one division.
BATHYS_FUNCTION float silu(float x) { return x / (1.0F + exp_float(-x)); }

// log(1 + exp(x)), x itself above 20 (where float32 cannot tell the two apart by more than 1 ulp), exact into the
// subnormals.
BATHYS_FUNCTION float softplus(float x) {
  return x > 20.0F ? x : static_cast<float>(log1p_double(exp_double(static_cast<double>(x))));
}

// 1 / sqrt(x): both operations are correctly rounded, so the pair is the same everywhere.
BATHYS_FUNCTION float reciprocal_sqrt(float x) { return 1.0F / sqrtf(x); }

}  // namespace bathys::numerics
