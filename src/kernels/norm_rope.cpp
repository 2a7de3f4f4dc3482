// SPDX-License-Identifier: Apache-2.0
#include "kernels/norm_rope.hpp"

#include "kernels/lanes.hpp"
#include "kernels/launch.hpp"
#include "numerics/maths.hpp"

#include <algorithm>
#include <cmath>

namespace bathys::kernels {

void rms_norm(const Exec& exec, const Mat<const bf16>& x, const Vec<const bf16>& gain, float eps, const Mat<bf16>& y) {
  const int width = columns_in(x);
  check_extent("rms_norm", "columns of y", columns_in(y), width);
  check_extent("rms_norm", "length of gain", rows_in(gain), width);
  check_at_least("rms_norm", "rows of y", rows_in(y), rows_in(x));
  for_each(
      exec, "bathys.rms_norm", rows_in(x), KOKKOS_LAMBDA(const std::int64_t i) {
        const bf16* in = row_of(x, i);
        bf16* out = row_of(y, i);
        const float mean = dot_row(in, in, width) / static_cast<float>(width);
        const float scale = numerics::reciprocal_sqrt(mean + eps);
        for (int c = 0; c < width; ++c) {
          out[c] = bf16(static_cast<float>(gain(c)) * (static_cast<float>(in[c]) * scale));
        }
      });
}

namespace {

// The pair index at which a wavelength turns `rotations` times within the original context.
double yarn_bound(const RopeSettings& s, double rotations) {
  constexpr double kTwoPi = 6.283185307179586476925;
  const double turns = static_cast<double>(s.original_seq_len) / (rotations * kTwoPi);
  return s.rope_dim * numerics::log_double(turns) / (2 * numerics::log_double(s.theta));
}

}  // namespace

std::vector<float> rope_frequencies(const RopeSettings& s) {
  check_multiple("rope_frequencies", "rope_dim", s.rope_dim, 2);
  std::vector<float> freqs(static_cast<std::size_t>(s.rope_dim / 2));
  for (std::size_t j = 0; j < freqs.size(); ++j) {
    const double power =
        numerics::exp_double(2.0 * static_cast<double>(j) / s.rope_dim * numerics::log_double(s.theta));
    freqs[j] = 1.0F / static_cast<float>(power);
  }
  if (s.original_seq_len > 0) {
    const double low = std::max(std::floor(yarn_bound(s, s.beta_fast)), 0.0);
    const double high = std::min(std::ceil(yarn_bound(s, s.beta_slow)), static_cast<double>(s.rope_dim - 1));
    const auto span = static_cast<float>(std::max(high - low, 1e-3));
    for (std::size_t j = 0; j < freqs.size(); ++j) {
      const float ramp = std::clamp((static_cast<float>(j) - static_cast<float>(low)) / span, 0.0F, 1.0F);
      const float keep = 1.0F - ramp;
      freqs[j] = freqs[j] / static_cast<float>(s.factor) * (1.0F - keep) + freqs[j] * keep;
    }
  }
  return freqs;
}

void rope_table(const Exec& exec, const Vec<const std::int64_t>& positions, const Vec<const float>& freqs,
                const Cube<float>& table) {
  const auto pairs = static_cast<int>(freqs.extent(0));
  check_extent("rope_table", "pairs of the table", static_cast<std::int64_t>(table.extent(1)), pairs);
  check_extent("rope_table", "last extent of the table", static_cast<std::int64_t>(table.extent(2)), 2);
  check_at_least("rope_table", "rows of the table", rows_in(table), rows_in(positions));
  for_each(
      exec, "bathys.rope_table", rows_in(positions) * pairs, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / pairs;
        const int j = static_cast<int>(item % pairs);
        const float angle = static_cast<float>(positions(i)) * freqs(j);
        double sine = 0;
        double cosine = 0;
        numerics::sincos_double(static_cast<double>(angle), sine, cosine);
        table(i, j, 0) = static_cast<float>(cosine);
        table(i, j, 1) = static_cast<float>(sine);
      });
}

void rope_rotate(const Exec& exec, const Mat<bf16>& x, int heads, int head_dim, const Vec<const std::int32_t>& rows,
                 const Cube<const float>& table, bool inverse) {
  const auto pairs = static_cast<int>(table.extent(1));
  check_extent("rope_rotate", "columns of x", columns_in(x), std::int64_t{heads} * head_dim);
  check_at_least("rope_rotate", "head_dim", head_dim, 2 * pairs);
  check_row_map("rope_rotate", rows, rows_in(x));
  if (rows.extent(0) == 0) check_at_least("rope_rotate", "rows of the table", rows_in(table), rows_in(x));
  for_each(
      exec, "bathys.rope_rotate", rows_in(x), KOKKOS_LAMBDA(const std::int64_t i) {
        const float* angles = table.data() + step_row(rows, i) * 2 * pairs;
        for (int head = 0; head < heads; ++head) {
          bf16* v = row_of(x, i) + (head + 1) * head_dim - 2 * pairs;
          for (int j = 0; j < pairs; ++j) {
            const float cosine = angles[2 * j];
            const float sine = inverse ? -angles[2 * j + 1] : angles[2 * j + 1];
            const auto real = static_cast<float>(v[2 * j]);
            const auto imaginary = static_cast<float>(v[2 * j + 1]);
            v[2 * j] = bf16(real * cosine - imaginary * sine);
            v[2 * j + 1] = bf16(real * sine + imaginary * cosine);
          }
        }
      });
}

}  // namespace bathys::kernels
