// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/linear.hpp"
#include "kernels/linear_layout.hpp"

#include <cstdint>
#include <string>

// Between the public functions of linear.hpp and the SIMD bodies of the host.
namespace bathys::kernels {

inline constexpr int kMaxUnitRows = 264;  // rows of one unit of work: a multiple of every tile height

// Everything a SIMD body reads and writes, as plain pointers.  Row i of the job is input row rows[i] (or i) and output
// row i.
struct LinearJob {
  WeightKind kind = WeightKind::bf16;
  bool q8 = false;
  std::int64_t n = 0, k = 0;
  PackedLayout layout;
  const std::uint8_t* weights = nullptr;
  const float* values = nullptr;
  const float* scales = nullptr;
  const std::int16_t* hi = nullptr;
  const std::int16_t* lo = nullptr;
  const std::int8_t* parts = nullptr;
  const std::int32_t* sums = nullptr;
  const std::uint8_t* rests = nullptr;
  std::int64_t value_stride = 0, hi_stride = 0, part_stride = 0, block_stride = 0;  // elements from row to row
  const std::int32_t* rows = nullptr;
  bf16* y_bf16 = nullptr;  // one of the two outputs
  float* y_f32 = nullptr;
  std::int64_t y_stride = 0;

  [[nodiscard]] std::int64_t input_row(std::int64_t i) const { return rows == nullptr ? i : rows[i]; }
};

// A unit of work: panels [panel_begin, panel_end) of one matrix times job rows [row0, row0 + n_rows), n_rows <=
// kMaxUnitRows.
struct LinearUnit {
  std::int64_t matrix = 0;
  std::int64_t panel_begin = 0, panel_end = 0;
  std::int64_t row0 = 0;
  int n_rows = 0;
};

// The SIMD bodies, chosen at run time for the CPU (linear_fp4.cpp, linear_float.cpp).
void run_fp4_unit(const LinearJob& job, const LinearUnit& unit);
void run_float_unit(const LinearJob& job, const LinearUnit& unit);

// How a job's rows fall to matrices: segment s is rows [begin(s), end(s)) times matrix first_matrix + s.
struct LinearSegments {
  std::int64_t first_matrix = 0;
  std::int64_t count = 1;
  std::int64_t rows = 0;                  // of the only segment, where offsets is null
  const std::int32_t* offsets = nullptr;  // [count + 1]

  [[nodiscard]] std::int64_t begin(std::int64_t s) const { return offsets == nullptr ? 0 : offsets[s]; }
  [[nodiscard]] std::int64_t end(std::int64_t s) const { return offsets == nullptr ? rows : offsets[s + 1]; }
};

// Does share `share` of `n_shares` equal shares of the work.  No bit of the result depends on n_shares.
void run_share(const LinearJob& job, const LinearSegments& segments, int share, int n_shares);

// Checks shapes and kinds and fills all but rows and output.  Throws Error(internal).
LinearJob make_linear_job(const PackedLinear& w, const Activation& x);

// The instruction set that the bodies run on ("AVX2", "AVX3", "AVX3_DL"), and a way to hold them to an older one
// (tests, bench). An empty name lifts the limit.  Not while kernels run.
std::string linear_simd_target();
bool limit_linear_simd(const std::string& name);

}  // namespace bathys::kernels
