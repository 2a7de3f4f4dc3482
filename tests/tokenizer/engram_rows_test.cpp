// SPDX-License-Identifier: Apache-2.0
// From text to rows of the released Engram tables: token ids, their classes, the constants derived from the released
// config, the hash.
#include "config/engram_layout.hpp"
#include "kernels/embedding.hpp"
#include "tokenizer/fixtures.hpp"
#include "tokenizer/token_map.hpp"

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using Rows = std::array<std::int64_t, 24>;
using Classes = std::vector<std::int64_t>;
constexpr std::int64_t kPadClass = 2;

config::EngramLayout released_layout() {
  config::ModelConfig config;
  config.engram_layer_ids = {1, 14};
  config.engram_max_ngram_size = 4;
  config.engram_vocab_size = 16'000'000;
  config.engram_n_heads = 8;
  config.engram_compressed_vocab_size = 99092;
  return engram_layout(config);
}

Rows rows_at(const config::EngramLayout::Layer& layer, const Classes& classes, std::size_t t) {
  std::array<std::int64_t, 4> history{};
  for (std::size_t back = 0; back < history.size(); ++back) history[back] = back <= t ? classes[t - back] : kPadClass;
  Rows rows{};
  kernels::engram_hash(history.data(), layer.multipliers.data(), layer.primes.data(), layer.offsets.data(), 4, 8,
                       rows.data());
  return rows;
}

TEST(EngramRows, OfATextAreThoseOfTheReleasedModel) {
  const CompressedTokenMap map = compressed_token_map(test::large_tokenizer());
  Classes classes;
  for (const TokenId id : test::large_tokenizer().encode("<｜begin▁of▁sentence｜>The capital of France is")) {
    classes.push_back(map.class_of[static_cast<std::size_t>(id)]);
  }
  ASSERT_EQ(classes, (Classes{0, 237, 5095, 251, 7208, 242}));
  const config::EngramLayout layout = released_layout();
  EXPECT_EQ(rows_at(layout.layers[0], classes, 0),
            (Rows{5702652,   24393184,  39183301,  61503783,  78984481,  90144770,  103724983, 121476532,
                  131476717, 152385926, 164143652, 191599181, 198145581, 217419202, 238329687, 247482304,
                  257520185, 283540304, 288689443, 315264704, 322314652, 348890037, 367865216, 380066193}));
  EXPECT_EQ(rows_at(layout.layers[1], classes, 0),
            (Rows{14361964,  29977809,  32716444,  61209771,  67456205,  84275051,  108494439, 120604547,
                  132225184, 150270452, 174805952, 178895254, 193207923, 211610196, 226280582, 252505246,
                  261362261, 279862797, 301364059, 312864848, 328367036, 349372619, 363873742, 372375971}));
  EXPECT_EQ(rows_at(layout.layers[0], classes, 5),
            (Rows{8434518,   28335418,  33056762,  54845833,  79590735,  82522014,  107990915, 114522034,
                  130425857, 150965795, 160866148, 176873966, 204352630, 218104334, 238747352, 249482421,
                  265625474, 283863772, 292296123, 304668435, 328974802, 341520388, 359388308, 379106837}));
  EXPECT_EQ(rows_at(layout.layers[1], classes, 5),
            (Rows{15511642,  19799350,  44525188,  61239392,  69665586,  94157954,  98489139,  126054713,
                  139053356, 149796646, 167594211, 189386395, 202012761, 221347336, 228940866, 253372258,
                  257015096, 287916013, 294274728, 315314213, 323264185, 338209388, 366614273, 380659356}));
}

}  // namespace
}  // namespace bathys::tokenizer
