// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

#include <cstdint>
#include <vector>

namespace bathys::config {

// The constants of the Engram hash, derived from the config alone.
//   column c = (n - 2) * engram_n_heads + head, n = 2..engram_max_ngram_size the n-gram size
struct EngramLayout {
  struct Layer {
    std::vector<std::int64_t> primes;       // [columns] modulus of each column
    std::vector<std::int64_t> offsets;      // [columns] first table row of each column: the sum of the moduli before it
    std::vector<std::int64_t> multipliers;  // [engram_max_ngram_size] odd factors of the tokens, newest token first
    std::int64_t rows = 0;                  // of the layer's table: the sum of its moduli
  };
  std::vector<Layer> layers;  // in the order of engram_layer_ids
};

// Needs only the Engram fields and vocabulary sizes of `config` to be in their valid ranges, not the row counts, which
// it derives.
[[nodiscard]] EngramLayout engram_layout(const ModelConfig& config);

// The multipliers of one layer: 2 v + 1 for the draws v of NumPy's default_rng(10007 * layer).integers(0, bound) with
// bound = max(1, (2^63 - 1) / compressed_vocab / 2), so that a compressed id times a multiplier stays below 2^63.
// Expects layer >= 0 and 1 <= compressed_vocab < 2^30: then the bound is above 2^32 and NumPy draws 64 bits at a time.
[[nodiscard]] std::vector<std::int64_t> engram_multipliers(int layer, int n_multipliers, std::int64_t compressed_vocab);

// Whether n is prime; exact for every 64-bit n.
[[nodiscard]] bool is_prime(std::uint64_t n);

}  // namespace bathys::config
