// SPDX-License-Identifier: Apache-2.0
// Memory of sequences: what is counted is what is taken, and what lies idle in one pool can serve the other.
#include "config/model_files.hpp"
#include "model/sequence.hpp"

#include <algorithm>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using model::BlockPool;
using model::CacheArena;
using model::CacheBlocks;
using model::Sequence;

config::ModelConfig nano() { return config_of("inputs/models/nano/config.json"); }

TEST(BlockPool, CountsWhatIsTakenAndGivesBackIdleSlabs) {
  BlockPool pool("test_pool", 1024);
  std::vector<std::shared_ptr<BlockPool::Block>> blocks;
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
  blocks.push_back(pool.take());  // and it goes on
  EXPECT_EQ(pool.used_bytes(), 1024);
}

TEST(BlockPool, GrowsByNoMoreThanItMay) {
  BlockPool pool("test_pool", 1024);
  std::vector<std::shared_ptr<BlockPool::Block>> blocks;
  for (const auto& [most, reserved] :
       {std::pair(3, 3), std::pair(3, 3), std::pair(3, 3), std::pair(0, 4), std::pair(-5, 5)}) {
    blocks.push_back(pool.take(most));
    EXPECT_EQ(pool.reserved(), reserved);
  }
}

TEST(BlockPool, PackingFreesWhatIsScatteredAndLosesNothing) {
  BlockPool pool("test_pool", 1024, 8 * 1024);
  std::vector<std::shared_ptr<BlockPool::Block>> blocks;
  for (int i = 0; i < 200; ++i) {
    blocks.push_back(pool.take());
    std::fill_n(blocks.back()->data(), 1024, static_cast<std::uint8_t>(i));
  }
  std::vector<std::shared_ptr<BlockPool::Block>> kept;  // one of every other slab, each by two owners
  for (std::size_t i = 5; i < blocks.size(); i += 16) kept.insert(kept.end(), 2, blocks[i]);
  blocks.clear();
  pool.trim();
  ASSERT_GE(pool.reserved(), 8 * 12);
  for (int round = 0; round < 2; ++round) {  // again, there is nothing to move
    pool.pack();
    EXPECT_EQ(pool.used(), 13);
    EXPECT_LT(pool.reserved(), 13 + 8);
    for (std::size_t i = 0; i < kept.size(); ++i) {
      const auto wanted = static_cast<std::uint8_t>(5 + 16 * (i / 2));
      EXPECT_EQ(std::count(kept[i]->data(), kept[i]->data() + 1024, wanted), 1024) << i;
    }
  }
  for (int i = 0; i < 100; ++i) blocks.push_back(pool.take());  // no two share their bytes
  std::set<const std::uint8_t*> places;
  for (const auto& block : blocks) places.insert(block->data());
  for (const auto& block : kept) places.insert(block->data());
  EXPECT_EQ(places.size(), 113U);
  kept.clear();
  blocks.clear();
  pool.pack();
  EXPECT_EQ(pool.reserved(), 0);
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

// Sequences as an engine admits them: by what they will come to take.
class Admitted {
 public:
  explicit Admitted(CacheArena& arena) : arena_(arena) {}

  // Whether there was room for a sequence of this length.
  bool add(std::int64_t length) {
    const CacheBlocks blocks = arena_.blocks_for(length);
    if (!arena_.make_room(promised_ + blocks)) return false;
    promised_ += blocks;
    arena_.promise(promised_);
    sequences_.push_back({arena_.make(), blocks, length});
    return true;
  }
  // All grow a little at a time, so that their pages lie mixed.
  void grow(std::int64_t step) {
    for (std::int64_t length = step, growing = 1; growing > 0; length += step) {
      growing = 0;
      for (One& one : sequences_) {
        arena_.reserve(one.sequence, std::min(length, one.length));
        growing += one.length > length ? 1 : 0;
      }
    }
  }
  void keep_every(std::size_t n) {
    for (std::size_t i = sequences_.size(); i-- > 0;) {
      if (i % n == 0) continue;
      promised_ -= sequences_[i].blocks;
      sequences_.erase(sequences_.begin() + static_cast<std::ptrdiff_t>(i));
    }
    arena_.promise(promised_);
  }
  [[nodiscard]] std::size_t size() const { return sequences_.size(); }

 private:
  struct One {
    Sequence sequence;
    CacheBlocks blocks;
    std::int64_t length;
  };
  CacheArena& arena_;
  CacheBlocks promised_;
  std::vector<One> sequences_;
};

TEST(CacheArena, ManyShortSequencesLeaveRoomForALongOne) {
  CacheArena arena(nano());
  const std::int64_t room = arena.bytes_for(200'000);
  arena.limit(room);
  {
    Admitted many(arena);
    while (many.add(1)) EXPECT_LE(arena.reserved_bytes(), room);
    many.grow(1);
    EXPECT_LE(arena.reserved_bytes(), room);
    EXPECT_GT(many.size(), 50U);
    EXPECT_GT(arena.used_bytes() + arena.bytes_for(1), room - room / 32);  // a part of a slab of each pool
  }
  Admitted long_one(arena);
  EXPECT_FALSE(long_one.add(210'000));
  ASSERT_TRUE(long_one.add(200'000));
  long_one.grow(1000);
  EXPECT_EQ(arena.used_bytes(), room);
  EXPECT_EQ(arena.reserved_bytes(), room);
}

TEST(CacheArena, ReservesNoMoreThanItsLimitHoweverBlocksLie) {
  CacheArena arena(nano());
  const std::int64_t room = 64 * arena.bytes_for(3000);
  arena.limit(room);
  Admitted sequences(arena);
  ASSERT_TRUE(sequences.add(1));
  EXPECT_GT(arena.reserved_bytes(), 2 * arena.used_bytes());  // by slabs as long as there is room
  const auto fill = [&](std::int64_t length) {
    while (sequences.add(length)) EXPECT_LE(arena.reserved_bytes(), room);
    sequences.grow(64);
    EXPECT_LE(arena.reserved_bytes(), room);
    // What cannot be had is a part of a slab of each pool, and less than one sequence.
    EXPECT_GE(arena.used_bytes() + arena.bytes_for(length), room - room / 16) << length;
    sequences.keep_every(8);  // one in almost every slab
  };
  for (const std::int64_t length : {3000, 1, 20'000, 300, 3000, 1, 100}) fill(length);
}

}  // namespace
}  // namespace bathys::test
