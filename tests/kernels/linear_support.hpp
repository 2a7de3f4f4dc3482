// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/linear.hpp"
#include "reference/linear.hpp"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <vector>

// Weights and inputs for the tests of the linears.
namespace bathys::test {

using kernels::bf16;
using kernels::Mat;
using kernels::Vec;
using kernels::WeightKind;
using reference::Weight;

// Scale codes that the converter accepts: their product with 2^-22 .. 2^120 is a normal number.
inline constexpr int kLowestScale = 23, kHighestScale = 134;

struct WeightOptions {
  int lowest_scale = 117, highest_scale = 122;
  float zero_blocks = 0;  // share of (row, block) pairs of fp4 that are all zero
};

inline Weight random_weight(WeightKind kind, std::int64_t n, std::int64_t k, std::mt19937& random,
                            const WeightOptions& options = {}) {
  Weight w;
  w.kind = kind;
  w.n = n;
  w.k = k;
  w.codes.resize(static_cast<std::size_t>(n * w.code_stride()));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> byte(0, 255), scale(options.lowest_scale, options.highest_scale);
  if (kind == WeightKind::bf16) {
    for (std::int64_t i = 0; i < n * k; ++i) {
      const std::uint16_t bits = numerics::bf16_bits(normal(random));
      std::memcpy(w.codes.data() + 2 * i, &bits, 2);
    }
  } else if (kind == WeightKind::f32) {
    for (std::int64_t i = 0; i < n * k; ++i) {
      const float v = normal(random);
      std::memcpy(w.codes.data() + 4 * i, &v, 4);
    }
  } else {
    for (auto& code : w.codes) {
      code = static_cast<std::uint8_t>(byte(random));
      if (kind == WeightKind::fp8 && (code & 0x7f) == 0x7f) code = 0x7e;
    }
    const std::int64_t scale_rows = kind == WeightKind::fp8 ? (n + 31) / 32 : n;
    w.scales.resize(static_cast<std::size_t>(scale_rows * w.scale_stride()));
    for (auto& code : w.scales) code = static_cast<std::uint8_t>(scale(random));
  }
  std::bernoulli_distribution zero(options.zero_blocks);
  for (std::int64_t row = 0; kind == WeightKind::fp4 && row < n; ++row) {
    for (std::int64_t b = 0; b < w.scale_stride(); ++b) {
      if (!zero(random)) continue;
      std::fill_n(w.codes.data() + row * w.code_stride() + b * 16, std::min<std::int64_t>(16, w.code_stride() - b * 16),
                  std::uint8_t{0x80});
      w.scales[static_cast<std::size_t>(row * w.scale_stride() + b)] = 254;
    }
  }
  return w;
}

// Packs a weight in pieces of `piece` rows (0: at once).
inline void pack(const Weight& w, std::uint8_t* packed, std::int64_t piece = 0) {
  kernels::clear_packed(w.kind, w.n, w.k, packed);
  for (std::int64_t row = 0; row < w.n; row += piece) {
    if (piece == 0) piece = w.n;
    const std::int64_t scale_row = w.kind == WeightKind::fp8 ? row / 32 : row;
    const kernels::WeightRows source{w.codes.data() + row * w.code_stride(), w.code_stride(),
                                     w.scales.empty() ? nullptr : w.scales.data() + scale_row * w.scale_stride(),
                                     w.scale_stride()};
    kernels::pack_rows(w.kind, w.n, w.k, row, std::min(piece, w.n - row), source, packed);
  }
}

inline kernels::PackedLinear packed_linear(const std::vector<Weight>& stack) {
  const Weight& w = stack.front();
  const std::size_t bytes = kernels::packed_bytes(w.kind, w.n, w.k);
  Vec<std::uint8_t> data("packed", bytes * stack.size());
  for (std::size_t i = 0; i < stack.size(); ++i) pack(stack[i], data.data() + i * bytes);
  return {w.kind, w.n, w.k, static_cast<std::int64_t>(stack.size()), data};
}

// Rows of bf16 numbers (held as float32); `sigma_steps` spreads the rows over magnitudes 2^-sigma_steps ..
// 2^sigma_steps.
inline std::vector<std::vector<float>> random_rows(std::int64_t rows, std::int64_t k, std::mt19937& random,
                                                   int sigma_steps = 0) {
  std::vector<std::vector<float>> x(static_cast<std::size_t>(rows), std::vector<float>(static_cast<std::size_t>(k)));
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> step(-sigma_steps, sigma_steps);
  for (auto& row : x) {
    for (auto& v : row) v = numerics::round_to_bf16(std::ldexp(normal(random), step(random)));
  }
  return x;
}

inline Mat<bf16> to_bf16_view(const std::vector<std::vector<float>>& x, std::int64_t extra_columns = 0) {
  const std::size_t k = x.empty() ? 0 : x[0].size();
  Mat<bf16> out("x", x.size(), k + static_cast<std::size_t>(extra_columns));
  for (std::size_t i = 0; i < x.size(); ++i) {
    for (std::size_t j = 0; j < k; ++j) out(i, j) = bf16(x[i][j]);
  }
  return out;
}

}  // namespace bathys::test
