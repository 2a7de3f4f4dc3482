// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/device.hpp"
#include "numerics/maths.hpp"

#include <cstdint>

// Counter-based noise: a draw depends on its key and counter alone, never on batch, shard, rank count or restart.
namespace bathys::numerics {

struct PhiloxBlock {
  std::uint32_t word[4];
};

// Philox4x32-10: four random words out of a counter of four and a key of two.
BATHYS_FUNCTION PhiloxBlock philox4x32(PhiloxBlock counter, std::uint32_t key0, std::uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const std::uint64_t a = std::uint64_t{0xD2511F53U} * counter.word[0];
    const std::uint64_t b = std::uint64_t{0xCD9E8D57U} * counter.word[2];
    counter = {{static_cast<std::uint32_t>(b >> 32) ^ counter.word[1] ^ key0, static_cast<std::uint32_t>(b),
                static_cast<std::uint32_t>(a >> 32) ^ counter.word[3] ^ key1, static_cast<std::uint32_t>(a)}};
    key0 += 0x9E3779B9U;
    key1 += 0xBB67AE85U;
  }
  return counter;
}

// Standard Gumbel noise from one 32-bit word: u = (x + 1/2) 2^-32, g = -log(-log u), in double; g lies in [-3.2, 22.9].
BATHYS_FUNCTION double gumbel(std::uint32_t x) {
  const double u = (static_cast<double>(x) + 0.5) * 0x1p-32;
  return -log_double(-log_double(u));
}

// The words of vocabulary ids 4 * id_block .. 4 * id_block + 3.  Counter: position (low, high), repeat, id_block.
BATHYS_FUNCTION PhiloxBlock noise_block(std::uint64_t key, std::int64_t position, std::int32_t repeat,
                                        std::int64_t id_block) {
  const auto p = static_cast<std::uint64_t>(position);
  return philox4x32({{static_cast<std::uint32_t>(p), static_cast<std::uint32_t>(p >> 32),
                      static_cast<std::uint32_t>(repeat), static_cast<std::uint32_t>(id_block)}},
                    static_cast<std::uint32_t>(key), static_cast<std::uint32_t>(key >> 32));
}

}  // namespace bathys::numerics
