// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "bench/machine_limits.hpp"

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

// `bathys bench linear`: the linears beside the machine's own limits.
namespace bathys::bench {

struct LinearBenchOptions {
  std::vector<std::string> kinds = {"fp4", "fp8", "bf16", "f32"};
  std::vector<std::int64_t> rows = {1, 4, 16, 64, 256};
  double seconds = 0.4;  // of each measurement
  std::string simd;      // "AVX2", "AVX3", "AVX3_DL", or empty: the best of this CPU
};

// One measurement.
struct LinearBenchLine {
  std::string what;           // kind and name, "fp4 w1"
  std::int64_t n = 0, k = 0;  // outputs, inputs
  std::int64_t rows = 0;
  double seconds = 0;       // of one linear, the inputs being prepared already; weights cold
  double weight_bytes = 0;  // as packed, all experts that have rows
  double flop = 0;          // 2 rows n k
  double prepare_seconds = 0;
  double target = 0;  // of `ratio`; 0: none
  bool of_bandwidth = false;

  // Weight bytes per second over the read bandwidth, or operations per second over the fma peak.
  [[nodiscard]] double ratio(const MachineLimits& limits) const {
    return of_bandwidth ? weight_bytes / seconds / limits.read_bytes_per_s : flop / seconds / limits.fma_flop_per_s;
  }
};

// Measures, prints a line at a time to `out`, and returns the lines.
//   throws Error(usage) for an unknown kind, or an instruction set that this CPU lacks
std::vector<LinearBenchLine> bench_linear(const LinearBenchOptions& options, std::ostream& out);

}  // namespace bathys::bench
