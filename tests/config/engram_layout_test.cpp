// SPDX-License-Identifier: Apache-2.0
#include "config/engram_layout.hpp"

#include "config/model_files.hpp"
#include "config/numpy_generator.hpp"
#include "support/golden.hpp"

#include <cstdint>
#include <limits>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::config {
namespace {

using ::testing::ElementsAre;

constexpr UInt128 wide(std::uint64_t high, std::uint64_t low) { return (UInt128{high} << 64) | low; }

TEST(NumpyGenerator, SeedsAsNumpyDoes) {
  const SeedWords first = seed_words(10007);
  EXPECT_THAT(first.pool, ElementsAre(0xf1a1018d, 0xa7c60c02, 0xfd15d50a, 0x03b81232));
  EXPECT_THAT(first.words, ElementsAre(0x77d32a348ad70d07, 0x993ed609b84a4fa5, 0xd5f972dec8698e49, 0x7d79ebaebcf148de));
  const SeedWords second = seed_words(140098);
  EXPECT_THAT(second.pool, ElementsAre(0x7097f09f, 0xc71373b7, 0x148492af, 0x9681c6c4));
  EXPECT_THAT(second.words,
              ElementsAre(0xdb5869feeeccf2be, 0xad465727d9cf3645, 0x5155d26378b6bab4, 0x9f9e49df66ff1c85));
}

TEST(NumpyGenerator, StartsFromNumpysState) {
  const NumpyGenerator first(10007);
  EXPECT_TRUE(first.state() == wide(0x3b34af7676e8ddd5, 0x556a026c98a77d27));
  EXPECT_TRUE(first.increment() == wide(0xabf2e5bd90d31c92, 0xfaf3d75d79e291bd));
  const NumpyGenerator second(140098);
  EXPECT_TRUE(second.state() == wide(0x081481950b65ad0c, 0x830c0440d514199b));
  EXPECT_TRUE(second.increment() == wide(0xa2aba4c6f16d7569, 0x3f3c93becdfe390b));
}

TEST(NumpyGenerator, DrawsNumpysBits) {
  NumpyGenerator first(10007);
  for (const std::uint64_t bits :
       {0xd2c3f84026661e33u, 0x0d4fb6969eb57435u, 0x62e6e1c58c3bd72bu, 0xcb7dd1a94ca96343u}) {
    EXPECT_EQ(first.next(), bits);
  }
  NumpyGenerator second(140098);
  for (const std::uint64_t bits :
       {0xba3ecc29cf07c111u, 0x8dac4bbe10610b7cu, 0x550b7148777ff213u, 0xe33b7455bc98449eu}) {
    EXPECT_EQ(second.next(), bits);
  }
}

TEST(NumpyGenerator, DrawsNumpysBoundedIntegers) {
  NumpyGenerator first(10007);
  for (const std::int64_t value : {38316048023122, 2419938046656, 17979836159674, 36993668729195}) {
    EXPECT_EQ(first.below(46539438283891), value);
  }
  NumpyGenerator second(140098);
  for (const std::int64_t value : {33858405369630, 25755403400457, 15460673601360, 41309613242795}) {
    EXPECT_EQ(second.below(46539438283891), value);
  }
}

TEST(NumpyGenerator, RedrawsWhereTheLowHalfFallsIntoTheRemainder) {
  // With a bound of 3 * 2^62 a quarter of all draws is redrawn; the rest are next() * 3/4, rounded down.
  const std::uint64_t bound = std::uint64_t{3} << 62;
  NumpyGenerator draws(7);
  NumpyGenerator bits(7);
  int redrawn = 0;
  for (int i = 0; i < 1000; ++i) {
    std::uint64_t word = bits.next();
    while (static_cast<std::uint64_t>(UInt128{word} * bound) < (std::uint64_t{0} - bound) % bound) {
      word = bits.next();
      ++redrawn;
    }
    EXPECT_EQ(static_cast<std::uint64_t>(draws.below(bound)), static_cast<std::uint64_t>(UInt128{word} * bound >> 64));
  }
  EXPECT_GT(redrawn, 200);
  EXPECT_LT(redrawn, 500);
}

TEST(EngramLayout, PrimesAreToldApartOverAll64Bits) {
  std::vector<bool> composite(100000, false);
  for (std::size_t n = 2; n < composite.size(); ++n) {
    EXPECT_EQ(is_prime(n), !composite[n]) << n;
    for (std::size_t k = n * n; k < composite.size(); k += n) composite[k] = true;
  }
  EXPECT_FALSE(is_prime(0));
  EXPECT_FALSE(is_prime(1));
  EXPECT_TRUE(is_prime(18446744073709551557u));  // the largest prime below 2^64
  EXPECT_FALSE(is_prime(18446744073709551615u));
  EXPECT_FALSE(is_prime(3215031751u));           // passes bases 2, 3, 5, 7
  EXPECT_FALSE(is_prime(3825123056546413051u));  // passes bases 2 to 23
  EXPECT_FALSE(is_prime(4294967291u * std::uint64_t{4294967279u}));
}

TEST(EngramLayout, TheReleasedTablesHaveTheKnownConstants) {
  const EngramLayout layout = engram_layout(test::released_config());
  ASSERT_EQ(layout.layers.size(), 2u);
  const auto from_16_million = [](std::initializer_list<int> tails) {
    std::vector<std::int64_t> primes;
    for (const int tail : tails) primes.push_back(16000000 + tail);
    return primes;
  };
  const EngramLayout::Layer& first = layout.layers[0];
  EXPECT_EQ(first.primes, from_16_million({57,  79,  81,  97,  121, 129, 133, 183, 189, 207, 211, 253,
                                           277, 289, 307, 321, 339, 381, 393, 399, 403, 409, 447, 463}));
  EXPECT_EQ(first.rows, 384006168);
  EXPECT_EQ(first.offsets[0], 0);
  EXPECT_EQ(first.offsets[1], 16000057);
  EXPECT_EQ(first.offsets[2], 32000136);
  EXPECT_EQ(first.offsets[3], 48000217);
  EXPECT_EQ(first.offsets[23], 368005705);
  EXPECT_THAT(first.multipliers, ElementsAre(76632096046245, 4839876093313, 35959672319349, 73987337458391));
  const EngramLayout::Layer& second = layout.layers[1];
  EXPECT_EQ(second.primes, from_16_million({477, 487, 499, 507, 511, 573, 609, 627, 667, 669, 693, 697,
                                            711, 729, 759, 769, 781, 799, 813, 819, 841, 877, 879, 889}));
  EXPECT_EQ(second.rows, 384016682);
  EXPECT_EQ(second.offsets[1], 16000477);
  EXPECT_EQ(second.offsets[23], 368015793);
  EXPECT_THAT(second.multipliers, ElementsAre(67716810739261, 51510806800915, 30921347202721, 82619226485591));
}

TEST(EngramLayout, ASmallTableHasTheKnownConstants) {
  ModelConfig config;
  config.engram_layer_ids = {0, 1};
  config.engram_max_ngram_size = 4;
  config.engram_vocab_size = 100;
  config.engram_n_heads = 2;
  config.engram_compressed_vocab_size = 256;
  const EngramLayout layout = engram_layout(config);
  EXPECT_THAT(layout.layers[0].primes, ElementsAre(101, 103, 107, 109, 113, 127));
  EXPECT_THAT(layout.layers[0].offsets, ElementsAre(0, 101, 204, 311, 420, 533));
  EXPECT_THAT(layout.layers[1].primes, ElementsAre(131, 137, 139, 149, 151, 157));
  EXPECT_EQ(layout.layers[0].rows, 660);
  EXPECT_EQ(layout.layers[1].rows, 864);
  EXPECT_THAT(layout.layers[0].multipliers,
              ElementsAre(22948963341361471, 9720090748611819, 1476226777048821, 595470825660793));
  EXPECT_THAT(layout.layers[1].multipliers,
              ElementsAre(29662608052400909, 1873410163432121, 13919202536988139, 28638879857136817));
}

TEST(EngramLayout, APrimeBaseIsItselfTheFirstModulus) {
  ModelConfig config;
  config.engram_layer_ids = {0};
  config.engram_max_ngram_size = 2;
  config.engram_vocab_size = 101;
  config.engram_n_heads = 2;
  config.engram_compressed_vocab_size = 256;
  EXPECT_THAT(engram_layout(config).layers[0].primes, ElementsAre(101, 103));
}

TEST(EngramLayout, EqualsTheGoldenModels) {
  for (const std::string model : {"base", "vision"}) {
    const ModelConfig config = test::config_of("tests/golden/" + model + "/model/config.json");
    const test::GoldenFile golden(model + "/golden.h5");
    const EngramLayout layout = engram_layout(config);
    std::vector<std::int64_t> primes, offsets, multipliers;
    for (const EngramLayout::Layer& layer : layout.layers) {
      primes.insert(primes.end(), layer.primes.begin(), layer.primes.end());
      offsets.insert(offsets.end(), layer.offsets.begin(), layer.offsets.end());
      multipliers.insert(multipliers.end(), layer.multipliers.begin(), layer.multipliers.end());
    }
    EXPECT_EQ(primes, golden.array("engram/primes").i) << model;
    EXPECT_EQ(offsets, golden.array("engram/offsets").i) << model;
    EXPECT_EQ(multipliers, golden.array("engram/multipliers").i) << model;
  }
}

TEST(EngramLayout, ProductsWithCompressedIdsStayBelow2To63) {
  for (const std::int64_t vocab : {std::int64_t{1}, std::int64_t{2}, std::int64_t{99092}, std::int64_t{1} << 29}) {
    for (int layer = 0; layer < 50; ++layer) {
      for (const std::int64_t multiplier : engram_multipliers(layer, 4, vocab)) {
        EXPECT_GT(multiplier, 0);
        EXPECT_LE(multiplier, std::numeric_limits<std::int64_t>::max() / vocab);
      }
    }
  }
}

}  // namespace
}  // namespace bathys::config
