// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <iosfwd>
#include <vector>

// `bathys bench sums`: what the exact sums over experts and output groups cost beside the linears that make the grains.
namespace bathys::bench {

struct SumBenchOptions {
  std::vector<std::int64_t> rows = {1, 16, 256};
  int dim = 5120;        // width of a grain
  double seconds = 0.2;  // of each measurement
};

// One rank's arithmetic alone (the reduction over ranks is the collectives'): one output group's part of wo_b [dim,
// 1024] and its grain added; six experts' outputs [dim, 2304] of each row, two of them on this rank, and their sum.
// Prints a line a size.
void bench_sums(const SumBenchOptions& options, std::ostream& out);

}  // namespace bathys::bench
