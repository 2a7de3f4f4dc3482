// SPDX-License-Identifier: Apache-2.0
#include "config/engram_layout.hpp"

#include "config/numpy_generator.hpp"

#include <algorithm>
#include <cstddef>
#include <limits>

namespace bathys::config {
namespace {

constexpr std::uint64_t kSeedOfLayer = 10007;  // the layer's generator is seeded with this times its number

std::uint64_t times_mod(std::uint64_t a, std::uint64_t b, std::uint64_t n) {
  return static_cast<std::uint64_t>(UInt128{a} * b % n);
}

std::uint64_t power_mod(std::uint64_t base, std::uint64_t exponent, std::uint64_t n) {
  std::uint64_t result = 1;
  for (; exponent > 0; exponent >>= 1) {
    if (exponent & 1) result = times_mod(result, base, n);
    base = times_mod(base, base, n);
  }
  return result;
}

}  // namespace

bool is_prime(std::uint64_t n) {
  // Miller-Rabin with the first twelve primes as bases has no false positive below 3.3e24.
  constexpr std::uint64_t kBases[] = {2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37};
  if (n < 2) return false;
  for (const std::uint64_t base : kBases) {
    if (n % base == 0) return n == base;
  }
  std::uint64_t odd = n - 1;
  int twos = 0;
  for (; odd % 2 == 0; odd /= 2) ++twos;
  return std::all_of(std::begin(kBases), std::end(kBases), [&](std::uint64_t base) {
    std::uint64_t x = power_mod(base, odd, n);
    if (x == 1 || x == n - 1) return true;
    for (int i = 1; i < twos; ++i) {
      x = times_mod(x, x, n);
      if (x == n - 1) return true;
    }
    return false;
  });
}

std::vector<std::int64_t> engram_multipliers(int layer, int n_multipliers, std::int64_t compressed_vocab) {
  const std::int64_t bound = std::max<std::int64_t>(1, std::numeric_limits<std::int64_t>::max() / compressed_vocab / 2);
  NumpyGenerator generator(kSeedOfLayer * static_cast<std::uint64_t>(layer));
  std::vector<std::int64_t> out(static_cast<std::size_t>(n_multipliers));
  // 2 v + 1 <= 2 bound - 1 < (2^63 - 1) / compressed_vocab: products with a compressed id, and their XOR, are never
  // negative.
  for (std::int64_t& multiplier : out) multiplier = 2 * generator.below(static_cast<std::uint64_t>(bound)) + 1;
  return out;
}

EngramLayout engram_layout(const ModelConfig& config) {
  EngramLayout layout;
  // Every n-gram size searches upwards from engram_vocab_size again but skips what is taken, and all primes up to the
  // last one found are taken: so the moduli of all layers and sizes are one ascending run of primes.
  std::uint64_t candidate = static_cast<std::uint64_t>(config.engram_vocab_size);
  for (const int layer_id : config.engram_layer_ids) {
    EngramLayout::Layer& layer = layout.layers.emplace_back();
    for (int column = 0; column < config.engram_columns(); ++column) {
      while (!is_prime(candidate)) ++candidate;
      layer.offsets.push_back(layer.rows);
      layer.primes.push_back(static_cast<std::int64_t>(candidate));
      layer.rows += static_cast<std::int64_t>(candidate);
      ++candidate;
    }
    layer.multipliers = engram_multipliers(layer_id, config.engram_max_ngram_size, config.engram_compressed_vocab_size);
  }
  return layout;
}

}  // namespace bathys::config
