// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.hpp"

#include <cstdint>
#include <iosfwd>

namespace bathys::bench {

struct EngineBenchOptions {
  std::int64_t requests = 32;   // half of them choices of a question, half generations
  std::int64_t context = 128;   // tokens before what is scored or drawn
  std::int64_t generated = 32;  // tokens of a generation
  std::int64_t cone = 4096;     // tokens of a context whose last row alone is wanted; 0: not measured
  int repeats = 3;              // of everything, in turns; the fastest counts
};

// The engine with full batches beside the same engine with one sequence at a time, on the same random tokens: tokens/s
// of both, and which part of the time is spent in kernels; then what the exact cone is worth.  One process.
void bench_engine(const EngineBenchOptions& options, model::Model& model, std::ostream& out);

}  // namespace bathys::bench
