// SPDX-License-Identifier: Apache-2.0
#include "config/numpy_generator.hpp"

#include <bit>
#include <cstddef>

namespace bathys::config {
namespace {

constexpr UInt128 kPcgMultiplier = (UInt128{0x2360ed051fc65da4} << 64) | 0x4385df649fccf645;

// SeedSequence's running hash: every call sees the constant left by the call before.
class RunningHash {
 public:
  RunningHash(std::uint32_t start, std::uint32_t factor) : constant_(start), factor_(factor) {}
  std::uint32_t operator()(std::uint32_t value) {
    value ^= constant_;
    constant_ *= factor_;
    value *= constant_;
    return value ^ (value >> 16);
  }

 private:
  std::uint32_t constant_;
  std::uint32_t factor_;
};

std::uint32_t mixed(std::uint32_t x, std::uint32_t y) {
  const std::uint32_t r = 0xca01f9ddu * x - 0x4973f715u * y;
  return r ^ (r >> 16);
}

}  // namespace

SeedWords seed_words(std::uint64_t seed) {
  SeedWords out{};
  // A 64-bit seed has at most two entropy words; a missing word hashes as 0, so the pool needs no count of them.
  const std::array<std::uint32_t, 4> entropy = {static_cast<std::uint32_t>(seed),
                                                static_cast<std::uint32_t>(seed >> 32), 0, 0};
  RunningHash fill(0x43b0d7e5u, 0x931e8875u);
  for (std::size_t i = 0; i < 4; ++i) out.pool[i] = fill(entropy[i]);
  for (std::size_t from = 0; from < 4; ++from) {
    for (std::size_t to = 0; to < 4; ++to) {
      if (to != from) out.pool[to] = mixed(out.pool[to], fill(out.pool[from]));
    }
  }
  RunningHash draw(0x8b51f9ddu, 0x58f38dedu);
  for (std::size_t i = 0; i < 4; ++i) {
    const std::uint64_t low = draw(out.pool[(2 * i) % 4]);
    const std::uint64_t high = draw(out.pool[(2 * i + 1) % 4]);
    out.words[i] = low | (high << 32);
  }
  return out;
}

NumpyGenerator::NumpyGenerator(std::uint64_t seed) {
  const auto words = seed_words(seed).words;
  const UInt128 start = (UInt128{words[0]} << 64) | words[1];
  const UInt128 stream = (UInt128{words[2]} << 64) | words[3];
  increment_ = 2 * stream + 1;
  step();
  state_ += start;
  step();
}

void NumpyGenerator::step() { state_ = state_ * kPcgMultiplier + increment_; }

std::uint64_t NumpyGenerator::next() {
  step();
  const std::uint64_t folded = static_cast<std::uint64_t>(state_ >> 64) ^ static_cast<std::uint64_t>(state_);
  return std::rotr(folded, static_cast<int>(state_ >> 122));
}

std::int64_t NumpyGenerator::below(std::uint64_t bound) {
  // Lemire's multiplication method: the high half of r * bound, redrawn where the low half falls into the short
  // remainder.
  UInt128 product = UInt128{next()} * bound;
  if (static_cast<std::uint64_t>(product) < bound) {
    const std::uint64_t remainder = (std::uint64_t{0} - bound) % bound;
    while (static_cast<std::uint64_t>(product) < remainder) product = UInt128{next()} * bound;
  }
  return static_cast<std::int64_t>(product >> 64);
}

}  // namespace bathys::config
