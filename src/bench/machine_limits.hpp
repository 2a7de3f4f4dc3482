// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bathys::bench {

// What this machine can do with the program's host threads, measured now: clocks and neighbours change, so a kernel's
// time is only ever compared with limits of the same run.
struct MachineLimits {
  int threads = 1;
  double read_bytes_per_s = 0;  // summing a buffer that is larger than every cache
  double fma_flop_per_s = 0;    // independent fp32 fma chains in registers, two operations each
};
MachineLimits measure_machine_limits(double seconds = 0.5);

}  // namespace bathys::bench
