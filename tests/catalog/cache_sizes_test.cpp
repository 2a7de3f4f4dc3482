// SPDX-License-Identifier: Apache-2.0
#include "catalog/cache_sizes.hpp"

#include "config/model_files.hpp"

#include <gtest/gtest.h>

namespace bathys::catalog {
namespace {

TEST(CacheSizes, TheReleaseKeeps890BytesATokenAnd2700000ASequence) {
  const config::ModelConfig config = test::released_config();
  EXPECT_EQ(compressed_kv_bytes(config), 288);
  EXPECT_EQ(index_key_bytes(config), 68);
  EXPECT_EQ(window_kv_bytes(config), 528);
  EXPECT_EQ(compressed_bytes_per_token(config), 890.0);
  EXPECT_EQ(compressed_cache_bytes(config, 1000), 890000);
  const SequenceBytes sequence = sequence_bytes(config);
  EXPECT_EQ(sequence.window, 40 * 128 * 528);  // 2.7 MB
  EXPECT_EQ(sequence.draft_window, 3 * 128 * 528);
  EXPECT_EQ(sequence.open_groups, 3 * 1 * 2 * 512 * 4);
  EXPECT_EQ(sequence.engram_tokens, 3 * 8);
}

TEST(CacheSizes, AnUnfinishedGroupIsNotInTheCompressedCache) {
  const config::ModelConfig config = test::released_config();
  EXPECT_EQ(compressed_cache_bytes(config, 0), 0);
  EXPECT_EQ(compressed_cache_bytes(config, 1), 356);  // the ratio-1 source only
  EXPECT_EQ(compressed_cache_bytes(config, 2), 2 * 356 + 3 * 356);
  EXPECT_EQ(compressed_cache_bytes(config, 3), 3 * 356 + 3 * 356);
  EXPECT_EQ(compressed_cache_bytes(config, std::int64_t{1} << 33), (std::int64_t{1} << 33) * 890);
}

TEST(CacheSizes, AModelWithoutEngramOrDraftKeepsNothingForThem) {
  const SequenceBytes sequence = sequence_bytes(test::config_of("tests/golden/plain/model/config.json"));
  EXPECT_EQ(sequence.draft_window, 0);
  EXPECT_EQ(sequence.engram_tokens, 0);
  EXPECT_EQ(sequence.window, 6 * 8 * (64 + 2));
}

}  // namespace
}  // namespace bathys::catalog
