// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_layout.hpp"
#include "numerics/quantize.hpp"

namespace bathys::kernels {
namespace {

// Rows start 64 or 128 bytes off a large power of two, or the rows of a tile would share one cache set.
std::int64_t row_stride(std::int64_t max_k) { return (max_k + kBlock - 1) / kBlock * kBlock + 2 * kPanel; }

template <class T>
Mat<T> allocate(const char* label, std::int64_t rows, std::int64_t columns) {
  return Mat<T>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), static_cast<std::size_t>(rows),
                static_cast<std::size_t>(columns));
}

void require_fits(const Activation& out, std::int64_t rows, std::int64_t columns, std::int64_t k) {
  require(k >= 0 && k <= columns, ExitCode::internal, "an activation takes {} columns of an input that has {}", k,
          columns);
  require(rows <= out.max_rows_ && k <= out.max_k_, ExitCode::internal,
          "an activation of {} rows of {} is asked to hold {} rows of {}; allocate it for the largest step",
          out.max_rows_, out.max_k_, rows, k);
}

}  // namespace

Activation::Activation(std::int64_t max_rows, std::int64_t max_k, bool with_q8)
    : max_rows_(max_rows),
      max_k_(max_k),
      with_q8_(with_q8),
      values(allocate<float>("activation values", max_rows, row_stride(max_k))) {
  if (!with_q8) return;
  const std::int64_t blocks = (max_k + kBlock - 1) / kBlock;
  scales = allocate<float>("activation scales", max_rows, blocks);
  if constexpr (kExecIsHost) {
    hi = allocate<std::int16_t>("activation hi", max_rows, row_stride(max_k));
    lo = allocate<std::int16_t>("activation lo", max_rows, row_stride(max_k));
    parts = allocate<std::int8_t>("activation parts", max_rows, blocks * 3 * kBlock);
    sums = allocate<std::int32_t>("activation sums", max_rows, blocks);
    rests = allocate<std::uint8_t>("activation rests", max_rows, blocks);
  }
}

// One block of one row.  Always 32 values, so that the compiler sees constant trip counts.
struct PrepareQ8 {
  Mat<const bf16> x;
  Activation out;
  std::int64_t blocks = 0;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t row = i / blocks;
    const std::int64_t block = i % blocks;
    const std::int64_t first = block * kBlock;
    const int n = static_cast<int>(out.k_ - first < kBlock ? out.k_ - first : kBlock);
    const bf16* in = &x(row, 0) + first;
    float v[kBlock];
    if (n == kBlock) {
      for (int j = 0; j < kBlock; ++j) v[j] = static_cast<float>(in[j]);
    } else {
      for (int j = 0; j < kBlock; ++j) v[j] = j < n ? static_cast<float>(in[j]) : 0.0F;
    }
    std::uint8_t codes[kBlock];
    out.scales(row, block) = numerics::e8m0_value(numerics::quantize_q8([&v](int j) { return v[j]; }, kBlock, codes));
    float* values = &out.values(row, 0) + first;
    for (int j = 0; j < kBlock; ++j) values[j] = 0x1p8F * numerics::e4m3_value(codes[j]);
    if constexpr (kExecIsHost) split(row, block, values);
  }

  // The integer parts that the fp4 kernels multiply.
  KOKKOS_FUNCTION void split(std::int64_t row, std::int64_t block, const float* values) const {
    std::int16_t* hi = &out.hi(row, 0) + block * kBlock;
    std::int16_t* lo = &out.lo(row, 0) + block * kBlock;
    std::int32_t h0[kBlock], h1[kBlock], r[kBlock];
    std::int32_t sum = 0, any_lo = 0, any_r = 0;
    for (int j = 0; j < kBlock; ++j) {
      const auto fixed = static_cast<std::int32_t>(2.0F * values[j]);
      const std::int32_t eighth = fixed / 8;
      hi[j] = static_cast<std::int16_t>(eighth);
      lo[j] = static_cast<std::int16_t>(fixed - 8 * eighth);
      const std::int32_t part = fixed / 32;
      r[j] = fixed - 32 * part;
      h0[j] = ((part + 64) & 127) - 64;
      h1[j] = (part - h0[j]) / 128;
      sum += fixed;
      any_lo |= fixed - 8 * eighth;
      any_r |= r[j];
    }
    std::int8_t* parts = &out.parts(row, 0) + block * 3 * kBlock;
    for (int group = 0; group < kBlock / 4; ++group) {
      for (int byte = 0; byte < 4; ++byte) {
        const int j = group * 4 + (byte == 1 ? 2 : byte == 2 ? 1 : byte);
        parts[group * 12 + byte] = static_cast<std::int8_t>(h0[j]);
        parts[group * 12 + 4 + byte] = static_cast<std::int8_t>(h1[j]);
        parts[group * 12 + 8 + byte] = static_cast<std::int8_t>(r[j]);
      }
    }
    out.sums(row, block) = sum;
    out.rests(row, block) =
        static_cast<std::uint8_t>((any_lo != 0 ? Activation::kHasLo : 0) | (any_r != 0 ? Activation::kHasR : 0));
  }
};

template <class T>
struct PreparePlain {
  Mat<const T> x;
  Activation out;
  std::int64_t blocks = 0;

  KOKKOS_FUNCTION void operator()(std::int64_t i) const {
    const std::int64_t row = i / blocks;
    const std::int64_t first = i % blocks * kBlock;
    const std::int64_t n = out.k_ - first < kBlock ? out.k_ - first : kBlock;
    const T* in = &x(row, 0) + first;
    float* values = &out.values(row, 0) + first;
    for (std::int64_t j = 0; j < n; ++j) values[j] = static_cast<float>(in[j]);
  }
};

template <class Functor, class T>
void prepare(const char* label, const Exec& exec, const Mat<const T>& x, std::int64_t k, bool q8, Activation& out) {
  const auto rows = static_cast<std::int64_t>(x.extent(0));
  require_fits(out, rows, static_cast<std::int64_t>(x.extent(1)), k);
  out.rows_ = rows;
  out.k_ = k;
  out.q8_ = q8;
  const std::int64_t blocks = (k + kBlock - 1) / kBlock;
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, rows * blocks),
                       Functor{x, out, blocks});
}

void prepare_q8(const Exec& exec, const Mat<const bf16>& x, std::int64_t k, Activation& out) {
  require(out.with_q8_, ExitCode::internal, "prepare_q8 on an activation that was allocated without buffers for q8");
  prepare<PrepareQ8>("bathys.prepare_q8", exec, x, k, true, out);
}

void prepare_plain(const Exec& exec, const Mat<const bf16>& x, std::int64_t k, Activation& out) {
  prepare<PreparePlain<bf16>>("bathys.prepare_plain_bf16", exec, x, k, false, out);
}

void prepare_plain(const Exec& exec, const Mat<const float>& x, std::int64_t k, Activation& out) {
  prepare<PreparePlain<float>>("bathys.prepare_plain_f32", exec, x, k, false, out);
}

}  // namespace bathys::kernels
