// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/cone.hpp"
#include "model/sequence.hpp"

#include <cstdint>
#include <vector>

namespace bathys::model {

// Consecutive rows of one sequence, from its length() on: a prefill chunk of any size or a single decode row.
struct SequenceChunk {
  Sequence* sequence = nullptr;
  std::vector<std::int32_t> tokens;
  // Distance of each row to the nearest wanted row of the sequence at or after it, in this step or a later one (0: its
  // hidden state is wanted now).  Decides which layers must run the row; a hint that is too small only costs time, one
  // that is too large is an internal error.
  std::vector<std::int64_t> reach;
  std::vector<std::uint8_t> image;  // 1 within an image span; empty: text only
};

// Any mix of chunks of different sequences, and also none.  A sequence stands in at most one chunk.
struct Step {
  std::vector<SequenceChunk> chunks;
  [[nodiscard]] std::int64_t rows() const {
    std::int64_t n = 0;
    for (const SequenceChunk& chunk : chunks) n += static_cast<std::int64_t>(chunk.tokens.size());
    return n;
  }
};

}  // namespace bathys::model
