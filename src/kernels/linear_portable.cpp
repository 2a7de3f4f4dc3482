// SPDX-License-Identifier: Apache-2.0
#include "kernels/linear_portable.hpp"

#include "kernels/linear_checks.hpp"
#include "kernels/linear_layout.hpp"
#include "numerics/formats.hpp"

namespace bathys::kernels {

// One output: row r of a panel times one input row.  scales null: plain values.
struct PortableDot {
  WeightKind kind;
  PackedLayout layout;
  std::int64_t k;
  const std::uint8_t* weights;
  const float* values;
  const float* scales;
  std::int64_t value_stride, scale_stride;

  KOKKOS_FUNCTION float operator()(std::int64_t matrix, std::int64_t n, std::int64_t row) const {
    const std::uint8_t* panel = weights + (matrix * layout.panels + n / kPanel) * layout.panel_bytes;
    const int r = static_cast<int>(n % kPanel);
    const float* x = values + row * value_stride;
    float acc = 0.0F;
    for (std::int64_t b = 0; b < layout.blocks; ++b) {
      const int length = static_cast<int>(k - b * kBlock < kBlock ? k - b * kBlock : kBlock);
      const std::uint8_t* codes = panel + layout.scale_bytes + b * layout.block_bytes;
      float scale = scales == nullptr ? 1.0F : scales[row * scale_stride + b];
      if (layout.scale_bytes > 0) scale *= numerics::e8m0_value(panel[scale_offset(kind, b, r)]);
      acc = fmaf(block_sum(codes, r, length, x + b * kBlock), scale, acc);
    }
    return acc;
  }

  KOKKOS_FUNCTION float block_sum(const std::uint8_t* codes, int r, int length, const float* x) const {
    if (kind == WeightKind::fp4) {
      std::int32_t sum = 0;  // units of 2^-10: x holds 2^8 q, a multiple of 1/2
      for (int j = 0; j < length; ++j) {
        const int byte = codes[code_offset(kind, r, j)];
        const auto code = static_cast<std::uint8_t>(in_high_nibble(j) ? byte >> 4 : byte & 0xf);
        sum += static_cast<std::int32_t>(2.0F * numerics::e2m1_value(code)) * static_cast<std::int32_t>(2.0F * x[j]);
      }
      return static_cast<float>(sum) * 0x1p-10F;
    }
    const float factor = scales == nullptr ? 1.0F : 0x1p-8F;
    float sum = 0.0F;
    for (int j = 0; j < length; ++j) sum = fmaf(weight(codes + code_offset(kind, r, j)), x[j] * factor, sum);
    return sum;
  }

  KOKKOS_FUNCTION float weight(const std::uint8_t* at) const {
    if (kind == WeightKind::fp8) return numerics::e4m3_value(*at);
    // Bytes by shifts: little-endian storage whatever the device, and no alignment is asked of it.
    std::uint32_t bits = static_cast<std::uint32_t>(at[0]) | static_cast<std::uint32_t>(at[1]) << 8;
    if (kind == WeightKind::bf16) return numerics::float_of_bits(bits << 16);
    bits |= static_cast<std::uint32_t>(at[2]) << 16 | static_cast<std::uint32_t>(at[3]) << 24;
    return numerics::float_of_bits(bits);
  }
};

template <class T>
struct PortableLinear {
  PortableDot dot;
  std::int64_t matrix = 0, n = 0;
  Mat<T> y;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const { y(i / n, i % n) = static_cast<T>(dot(matrix, i % n, i / n)); }
};

struct PortableExperts {
  PortableDot dot;
  std::int64_t count = 0, n = 0;
  Vec<const std::int32_t> offsets, rows;
  bool gathered = false;
  Mat<bf16> y;
  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t a = i / n;
    if (a >= offsets(count)) return;
    std::int64_t expert = 0;
    while (offsets(expert + 1) <= a) ++expert;
    y(a, i % n) = static_cast<bf16>(dot(expert, i % n, gathered ? rows(a) : a));
  }
};

namespace {

using Policy = Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>;

PortableDot make_dot(const PackedLinear& w, const Activation& x) {
  require_operands(w, x);
  return {w.kind,
          packed_layout(w.kind, w.n, w.k),
          w.k,
          w.data.data(),
          x.values.data(),
          x.is_q8() ? x.scales.data() : nullptr,
          static_cast<std::int64_t>(x.values.stride(0)),
          x.is_q8() ? static_cast<std::int64_t>(x.scales.stride(0)) : 0};
}

template <class T>
void run_portable(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<T>& y) {
  require_matrix(w, matrix);
  require_output(w, x.rows(), y.extent(0), y.extent(1));
  Kokkos::parallel_for("bathys.linear_portable", Policy(exec, 0, x.rows() * w.n),
                       PortableLinear<T>{make_dot(w, x), matrix, w.n, y});
}

}  // namespace

void linear_portable(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x,
                     const Mat<bf16>& y) {
  run_portable(exec, w, matrix, x, y);
}

void linear_portable(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x,
                     const Mat<float>& y) {
  run_portable(exec, w, matrix, x, y);
}

void expert_linear_portable(const Exec& exec, const PackedLinear& w, const Activation& x, const ExpertRows& assignment,
                            const Mat<bf16>& y) {
  require_offsets(w, assignment.offsets);
  // How many rows are assigned is known on the device only: the launch covers all that y can hold.
  const auto rows = static_cast<std::int64_t>(y.extent(0));
  require_output(w, 0, y.extent(0), y.extent(1));
  Kokkos::parallel_for("bathys.expert_linear_portable", Policy(exec, 0, rows * w.n),
                       PortableExperts{make_dot(w, x), w.count, w.n, assignment.offsets, assignment.rows,
                                       assignment.rows.extent(0) > 0, y});
}

#if defined(KOKKOS_ENABLE_CUDA) || defined(KOKKOS_ENABLE_HIP)
// No SIMD bodies in a device build.
void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<bf16>& y) {
  run_portable(exec, w, matrix, x, y);
}

void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<float>& y) {
  run_portable(exec, w, matrix, x, y);
}

void expert_linear(const Exec& exec, const PackedLinear& w, const Activation& x, const ExpertRows& assignment,
                   const Mat<bf16>& y) {
  expert_linear_portable(exec, w, x, assignment, y);
}
#endif

}  // namespace bathys::kernels
