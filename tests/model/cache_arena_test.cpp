// SPDX-License-Identifier: Apache-2.0
// Memory of sequences: what is counted is what is taken, and what lies idle in one pool can serve the other.
#include "config/model_config.hpp"
#include "model/sequence.hpp"

#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using model::BlockPool;
using model::CacheArena;
using model::Sequence;

config::ModelConfig nano() {
  std::ifstream file(std::string(BATHYS_TEST_DATA) + "/../inputs/models/nano/config.json");
  std::ostringstream text;
  text << file.rdbuf();
  return config::read_model_config(text.str(), "nano");
}

TEST(BlockPool, CountsWhatIsTakenAndGivesBackIdleSlabs) {
  BlockPool pool("test_pool", 1024);
  std::vector<std::shared_ptr<std::uint8_t>> blocks;
  for (int i = 0; i < 100; ++i) blocks.push_back(pool.take());
  EXPECT_EQ(pool.used_bytes(), 100 * 1024);
  EXPECT_GE(pool.reserved_bytes(), pool.used_bytes());
  const std::int64_t reserved = pool.reserved_bytes();
  pool.trim();  // slabs are in use, but for a last one perhaps
  EXPECT_GE(pool.reserved_bytes(), pool.used_bytes());
  blocks.resize(1);
  EXPECT_EQ(pool.used_bytes(), 1024);
  pool.trim();
  EXPECT_LT(pool.reserved_bytes(), reserved);
  EXPECT_GE(pool.reserved_bytes(), 1024);
  blocks.clear();
  pool.trim();
  EXPECT_EQ(pool.reserved_bytes(), 0);
  EXPECT_GT(pool.growth_bytes(), 0);
  blocks.push_back(pool.take());  // and it goes on
  EXPECT_EQ(pool.used_bytes(), 1024);
}

TEST(CacheArena, ASequenceTakesTheBytesThatWereTold) {
  CacheArena arena(nano());
  for (const std::int64_t length : {1, 127, 128, 129, 1000, 5000}) {
    Sequence sequence = arena.make();
    arena.reserve(sequence, length);
    EXPECT_EQ(arena.used_bytes(), arena.bytes_for(length)) << length;
  }
  EXPECT_EQ(arena.used_bytes(), 0);
}

TEST(CacheArena, ManyShortSequencesLeaveRoomForALongOne) {
  CacheArena arena(nano());
  const std::int64_t room = arena.bytes_for(200'000);
  arena.limit(room);
  {
    std::vector<Sequence> many;
    while (arena.used_bytes() + arena.bytes_for(1) <= room) many.push_back(arena.make());
    EXPECT_GT(many.size(), 50U);
  }
  Sequence long_one = arena.make();
  arena.reserve(long_one, 200'000);
  EXPECT_EQ(arena.used_bytes(), room);
  // All but the slab that the long one's state lies in has gone over to pages.
  EXPECT_LE(arena.reserved_bytes(), room + (std::int64_t{12} << 20));
}

}  // namespace
}  // namespace bathys::test
