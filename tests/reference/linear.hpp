// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/linear.hpp"
#include "numerics/formats.hpp"
#include "numerics/quantize.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <vector>

// Linears as the contract states them, on weights as a checkpoint stores them (docs/numerics.md, "Linear layers").
namespace bathys::reference {

using kernels::WeightKind;

// Checkpoint form of a weight [n, k]: codes row-major, scales as in kernels::WeightRows.
struct Weight {
  WeightKind kind = WeightKind::bf16;
  std::int64_t n = 0, k = 0;
  std::vector<std::uint8_t> codes;
  std::vector<std::uint8_t> scales;

  [[nodiscard]] std::int64_t code_stride() const {
    return kind == WeightKind::fp4    ? (k + 1) / 2
           : kind == WeightKind::fp8  ? k
           : kind == WeightKind::bf16 ? 2 * k
                                      : 4 * k;
  }
  [[nodiscard]] std::int64_t scale_stride() const { return (k + 31) / 32; }
  [[nodiscard]] float value(std::int64_t row, std::int64_t j) const {
    const std::uint8_t* at = codes.data() + row * code_stride();
    switch (kind) {
      case WeightKind::fp4:
        return numerics::e2m1_value(static_cast<std::uint8_t>(at[j / 2] >> (j % 2 * 4) & 0xf));
      case WeightKind::fp8:
        return numerics::e4m3_value(at[j]);
      case WeightKind::bf16:
        return numerics::float_of_bits(static_cast<std::uint32_t>(at[2 * j] | at[2 * j + 1] << 8) << 16);
      default: {
        float v;
        std::memcpy(&v, at + 4 * j, sizeof v);
        return v;
      }
    }
  }
  [[nodiscard]] float scale(std::int64_t row, std::int64_t block) const {
    if (scales.empty()) return 1.0F;
    const std::int64_t scale_row = kind == WeightKind::fp8 ? row / 32 : row;
    return numerics::e8m0_value(scales[static_cast<std::size_t>(scale_row * scale_stride() + block)]);
  }
  [[nodiscard]] bool all_zero(std::int64_t row, std::int64_t first, std::int64_t last) const {
    for (std::int64_t j = first; j < last; ++j) {
      if (value(row, j) != 0) return false;
    }
    return true;
  }
};

// One row of inputs: values, with a scale for every 32 of them.
struct Row {
  std::vector<float> values;
  std::vector<float> scales;
};

inline Row plain_row(const std::vector<float>& x) { return {x, std::vector<float>((x.size() + 31) / 32, 1.0F)}; }

inline Row q8_row(const std::vector<float>& x) {
  Row out{x, {}};
  for (std::size_t first = 0; first < x.size(); first += 32) {
    const int n = static_cast<int>(std::min<std::size_t>(32, x.size() - first));
    std::uint8_t codes[32];
    out.scales.push_back(
        numerics::e8m0_value(numerics::quantize_q8([&](int j) { return x[first + std::size_t(j)]; }, n, codes)));
    for (int j = 0; j < n; ++j) out.values[first + std::size_t(j)] = numerics::e4m3_value(codes[j]);
  }
  return out;
}

// The sum of one block of fp4 times q8: exact (every partial sum is a multiple of 2^-10 below 2^17, which a double
// holds), rounded once.
inline float exact_sum(const Weight& w, std::int64_t n, const Row& x, std::int64_t first, std::int64_t last) {
  double sum = 0;
  for (std::int64_t k = first; k < last; ++k) sum += double(w.value(n, k)) * double(x.values[std::size_t(k)]);
  return static_cast<float>(sum);
}

inline float chain_sum(const Weight& w, std::int64_t n, const Row& x, std::int64_t first, std::int64_t last) {
  float sum = 0;
  for (std::int64_t k = first; k < last; ++k) sum = std::fma(w.value(n, k), x.values[std::size_t(k)], sum);
  return sum;
}

// y[n].
inline float linear(const Weight& w, std::int64_t n, const Row& x) {
  float acc = 0;
  for (std::int64_t first = 0; first < w.k; first += 32) {
    const std::int64_t last = std::min(first + 32, w.k);
    const float sum = w.kind == WeightKind::fp4 ? exact_sum(w, n, x, first, last) : chain_sum(w, n, x, first, last);
    const float s_w =
        w.all_zero(n, first, last) ? 1.0F : w.scale(n, first / 32);  // zeros keep no scale, see "Packed weights"
    acc = std::fma(sum, x.scales[std::size_t(first / 32)] * s_w, acc);
  }
  return acc;
}

}  // namespace bathys::reference
