// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

namespace bathys::config {

using UInt128 = unsigned __int128;

// NumPy's default_rng for seeds below 2^64: SeedSequence feeding PCG64 (XSL-RR 128/64).  Engram multipliers are draws
// of it, so its stream is part of the checkpoint format; the test values are those of NumPy 1.24.
class NumpyGenerator {
 public:
  explicit NumpyGenerator(std::uint64_t seed);

  // The next 64 random bits.
  std::uint64_t next();
  // integers(0, bound, dtype=int64): uniform in 0..bound-1.  Expects bound > 2^32 (below, NumPy draws from 32-bit
  // halves).
  std::int64_t below(std::uint64_t bound);

  [[nodiscard]] UInt128 state() const { return state_; }
  [[nodiscard]] UInt128 increment() const { return increment_; }

 private:
  void step();

  UInt128 state_ = 0;
  UInt128 increment_ = 0;
};

// The four words of SeedSequence's pool for a seed, and the four 64-bit words it generates from them.
struct SeedWords {
  std::array<std::uint32_t, 4> pool;
  std::array<std::uint64_t, 4> words;
};
[[nodiscard]] SeedWords seed_words(std::uint64_t seed);

}  // namespace bathys::config
