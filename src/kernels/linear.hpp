// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

#include <cstddef>
#include <cstdint>

// Linear layers on packed weights.  y[m,n] has one definition, so that every kernel, SIMD width, thread count, tile and
// number of rows gives the same bits (docs/numerics.md, "Linear layers"):
//   K is cut into blocks of 32 (the last may be shorter).  Block sum: for fp4 x q8 the exact sum, as an integer in
//   units of 2^-10, rounded once to fp32 and scaled by 2^-10; otherwise a sequential fp32 fma chain over k that starts
//   at 0. acc = fma(block sum, s_a * s_w, acc) in K order, s_a and s_w powers of two (1 where a side has no scale).
// Kernels vectorize and thread across N (and rows), never across K.
namespace bathys::kernels {

enum class WeightKind { fp4, fp8, bf16, f32 };

// One or several stacked weight matrices [n, k] in the kernels' panel layout (docs/numerics.md, "Packed weights"): fp4
// 0.53 B a weight, fp8 1.0 B, bf16 2 B, f32 4 B, n padded to panels of 16 rows.
struct PackedLinear {
  WeightKind kind = WeightKind::bf16;
  std::int64_t n = 0;            // output features of one matrix
  std::int64_t k = 0;            // input features
  std::int64_t count = 1;        // matrices stacked (experts)
  Vec<const std::uint8_t> data;  // count * packed_bytes(kind, n, k)
};

// Bytes of one packed matrix; a multiple of 64.
std::size_t packed_bytes(WeightKind kind, std::int64_t n, std::int64_t k);

// Source rows for packing, as a checkpoint stores them: codes row-major (fp4: two a byte, even column in the low
// nibble) with `code_stride` bytes from row to row; scales row-major E8M0 with `scale_stride` bytes from scale row to
// scale row (fp4: one scale row per weight row; fp8: one per 32 weight rows; else unused).  Column ranges of a wider
// matrix are taken by offsetting pointers.
struct WeightRows {
  const std::uint8_t* codes = nullptr;
  std::int64_t code_stride = 0;
  const std::uint8_t* scales = nullptr;
  std::int64_t scale_stride = 0;
};

// Packs rows [row0, row0 + rows) of one matrix [n, k] into `packed` (host memory, packed_bytes); pieces may come in any
// order, fp8 pieces start at a multiple of 32.  `source.codes` points at row row0, `source.scales` at the scale row of
// row0 (fp4: row0; fp8: row0 / 32).  Padding must have been zeroed: call clear_packed first.  A block of zeros gets the
// scale 1, whatever its code was.
//   throws Error(bad_input) where an fp8 code is NaN, or the scale of a block that is not all zero
void clear_packed(WeightKind kind, std::int64_t n, std::int64_t k, std::uint8_t* packed);
void pack_rows(WeightKind kind, std::int64_t n, std::int64_t k, std::int64_t row0, std::int64_t rows,
               const WeightRows& source, std::uint8_t* packed);

// Rows of inputs, prepared once and used by any number of linears with the same k.  Allocated once for max_rows;
// prepare_* overwrites. q8: what fp4 and fp8 weights take.  plain: what bf16 and f32 weights take (and fp8 weights of
// wo_a, used as bf16).
class Activation {
 public:
  Activation() = default;
  Activation(std::int64_t max_rows, std::int64_t max_k, bool with_q8);  // without q8 only prepare_plain may be called
  [[nodiscard]] std::int64_t rows() const { return rows_; }
  [[nodiscard]] std::int64_t k() const { return k_; }
  [[nodiscard]] bool is_q8() const { return q8_; }

  // Private to this folder: a Kokkos functor needs plain members.  Blocks are 32 inputs; q8 pads a shorter last block
  // with zeros.
  std::int64_t rows_ = 0, k_ = 0, max_rows_ = 0, max_k_ = 0;
  bool with_q8_ = false;  // buffers for q8 exist
  bool q8_ = false;       // the rows hold q8
  Mat<float> values;  // [rows, >= k] the plain value; q8: 2^8 q, since E4M3 weights are widened as fp16 numbers, 2^-8
                      // of their value
  Mat<float> scales;  // [rows, blocks] q8: s_a, NaN where the block holds a NaN or an infinity (q is 0 there)
  // q8 on the host only.  512 q is an integer below 2^18:
  Mat<std::int16_t> hi;  // [rows, >= k] 512 q = 8 hi + lo
  Mat<std::int16_t> lo;  // [rows, >= k]
  // parts [rows, blocks * 96]: 512 q = 4096 h1 + 32 h0 + r, h0 in [-64, 63], h1 in [-56, 56], |r| < 32.  A block has
  // eight groups of four inputs (in the order 0 2 1 3), each 4 bytes h0, 4 bytes h1, 4 bytes r.
  Mat<std::int8_t> parts;
  Mat<std::int32_t> sums;   // [rows, blocks] sum of 512 q
  Mat<std::uint8_t> rests;  // [rows, blocks] kHasLo: some lo is not 0; kHasR: some r is not 0
  static constexpr std::uint8_t kHasLo = 1, kHasR = 2;
};

// x bf16 [n, >= k] (the leading k columns of each row; row stride x.stride(0)).  Quantizes Q8 in groups of 32.
void prepare_q8(const Exec& exec, const Mat<const bf16>& x, std::int64_t k, Activation& out);
void prepare_plain(const Exec& exec, const Mat<const bf16>& x, std::int64_t k, Activation& out);
void prepare_plain(const Exec& exec, const Mat<const float>& x, std::int64_t k, Activation& out);

// y[m, 0..n) = W x[m], rounded to bf16 (or float32).  `matrix` picks one of the stacked matrices.  y may have more
// columns than n: its first n are written (row stride y.stride(0)).  x.rows() rows are written.
//   throws Error(internal) when shapes or kinds disagree (fp4 needs q8; bf16 and f32 need plain; fp8 takes both)
void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<bf16>& y);
void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<float>& y);

// Rows grouped by expert: assignment a in [offsets[i], offsets[i+1]) of local expert i takes input row rows[a] (or row
// a itself when `rows` is empty) and writes output row a of y (bf16).  offsets [count + 1]
struct ExpertRows {
  Vec<const std::int32_t> offsets;
  Vec<const std::int32_t> rows;
};
void expert_linear(const Exec& exec, const PackedLinear& w, const Activation& x, const ExpertRows& assignment,
                   const Mat<bf16>& y);

}  // namespace bathys::kernels
