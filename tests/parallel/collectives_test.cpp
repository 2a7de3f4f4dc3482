// SPDX-License-Identifier: Apache-2.0
// Every collective at every size of the group, with uneven and empty parts, over MPI as it is and cut into tiny
// messages, and over the group of one.
#include "parallel/collectives.hpp"

#include "parallel/rank_grid.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

using ::testing::ElementsAreArray;

enum class Kind { mpi, messages, tiny_messages, never_direct, single };

class CollectivesTest : public ::testing::TestWithParam<Kind> {
 protected:
  void SetUp() override {
    world_ = make_world_collectives();
    switch (GetParam()) {
      case Kind::mpi:
        group_ = make_world_collectives();
        break;
      case Kind::messages:
        group_ = make_world_collectives({.shared_memory = false});
        break;
      case Kind::tiny_messages:
        group_ = make_world_collectives({.max_message_bytes = 24, .shared_memory = false, .direct_reduce_bytes = 1});
        break;
      case Kind::never_direct:
        group_ = make_world_collectives({.shared_memory = false, .direct_reduce_bytes = std::int64_t{1} << 29});
        break;
      case Kind::single:
        group_ = make_single_collectives();
        break;
    }
    rank_ = group_->rank();
    size_ = group_->size();
  }
  // Ranks must not leave a test apart: a failing rank would skip collectives that others wait in.
  void TearDown() override { world_->barrier(); }

  // Pseudo-random 64 bits for element i of rank r.
  static std::uint64_t value(int r, std::int64_t i) {
    std::uint64_t z = (static_cast<std::uint64_t>(r) << 40) + static_cast<std::uint64_t>(i) + 0x9e3779b97f4a7c15ULL;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
    return z ^ (z >> 31);
  }
  static std::uint8_t byte(int from, int to, std::int64_t i) {
    return static_cast<std::uint8_t>(value(from * 64 + to, i));
  }

  // Uneven, with empty ones: 0, 37, 5, 0, 43 ...
  static std::int64_t uneven(int r) { return r % 3 == 0 ? 0 : 37 * (r % 3 == 1) + 5 * (r % 3 == 2) + 2 * (r / 3); }

  // A length well above the thresholds; less where each message is tiny and would be one of ten thousands.
  static std::int64_t large(std::int64_t n) { return GetParam() == Kind::tiny_messages ? n / 20 : n; }

  Exec exec_;
  std::unique_ptr<Collectives> world_;
  std::unique_ptr<Collectives> group_;
  int rank_ = 0;
  int size_ = 1;
};

TEST_P(CollectivesTest, IntegerSumsAreExactForAllLengths) {
  for (const std::int64_t n : {std::int64_t{0}, std::int64_t{1}, std::int64_t{2}, std::int64_t{3}, std::int64_t{64},
                               std::int64_t{1000}, large(20011), large(200017)}) {
    std::vector<std::int64_t> values(static_cast<std::size_t>(n));
    std::vector<std::int64_t> expected(values.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<std::size_t>(i);
      values[at] = static_cast<std::int64_t>(value(rank_, i));
      std::uint64_t sum = 0;
      for (int r = 0; r < size_; ++r) sum += value(r, i);
      expected[at] = static_cast<std::int64_t>(sum);
    }
    group_->all_reduce_sum(exec_, values.data(), n);
    ASSERT_EQ(values, expected) << n;
  }
}

TEST_P(CollectivesTest, FloatSumsAddAscendingRanksAndAgreeOnAllRanks) {
  const std::int64_t n = large(8191);
  const auto term = [](int r, std::int64_t i) {
    return static_cast<float>(static_cast<std::int32_t>(value(r, i))) * 1e-3f;
  };
  std::vector<float> values(static_cast<std::size_t>(n));
  std::vector<float> expected(values.size());
  for (std::int64_t i = 0; i < n; ++i) {
    values[static_cast<std::size_t>(i)] = term(rank_, i);
    float sum = term(0, i);
    for (int r = 1; r < size_; ++r) sum += term(r, i);
    expected[static_cast<std::size_t>(i)] = sum;
  }
  group_->all_reduce_sum(exec_, values.data(), n);
  EXPECT_EQ(values, expected);
}

TEST_P(CollectivesTest, MaximaAreTheSameBitsInEveryLayout) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const float nan = std::bit_cast<float>(0xffc01234U);  // negative, with a payload
  // One column per case; the last rank holds the interesting value.
  std::vector<float> values = {-1.0f - static_cast<float>(rank_), -inf, -0.0f, 5.0f, -inf, 1e-42f};
  if (rank_ == size_ - 1) values = {-1.0f - static_cast<float>(rank_), 3.0f, 0.0f, nan, -inf, 2e-42f};
  group_->all_reduce_max(exec_, values.data(), std::ssize(values));
  EXPECT_EQ(values[0], -1.0f);
  EXPECT_EQ(values[1], 3.0f);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(values[2]), 0U);
  EXPECT_EQ(std::bit_cast<std::uint32_t>(values[3]), 0x7fffffffU);
  EXPECT_EQ(values[4], -inf);
  EXPECT_EQ(values[5], 2e-42f);

  std::vector<float> many(9001);
  for (std::size_t i = 0; i < many.size(); ++i)
    many[i] = i % static_cast<std::size_t>(size_) == static_cast<std::size_t>(rank_) ? 1.0f : -2.0f;
  group_->all_reduce_max(exec_, many.data(), std::ssize(many));
  EXPECT_EQ(std::count(many.begin(), many.end(), 1.0f), std::ssize(many));
  group_->all_reduce_max(exec_, nullptr, 0);
}

TEST_P(CollectivesTest, BitPatternsOfOneOwnerReachAll) {
  for (const std::int64_t n :
       {std::int64_t{0}, std::int64_t{1}, std::int64_t{3}, std::int64_t{8}, std::int64_t{77}, large(50001)}) {
    std::vector<std::uint8_t> data(static_cast<std::size_t>(n));
    std::vector<std::uint8_t> expected(data.size());
    for (std::int64_t i = 0; i < n; ++i) {
      const int owner = static_cast<int>(i / 5 % size_);
      expected[static_cast<std::size_t>(i)] = byte(owner, 0, i);
      if (owner == rank_) data[static_cast<std::size_t>(i)] = expected[static_cast<std::size_t>(i)];
    }
    group_->all_reduce_or(exec_, data.data(), n);
    ASSERT_EQ(data, expected) << n;
  }
  std::uint16_t minus_zero = rank_ == size_ - 1 ? 0x8000 : 0;  // bf16 -0: a sum of numbers would lose the sign
  group_->all_reduce_or(exec_, &minus_zero, sizeof minus_zero);
  EXPECT_EQ(minus_zero, 0x8000);
}

TEST_P(CollectivesTest, EqualPiecesAreGatheredAlsoInPlace) {
  for (const std::int64_t n : {0, 1, 24, 25, 1003}) {
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < size_; ++r) {
      for (std::int64_t i = 0; i < n; ++i) expected.push_back(byte(r, 1, i));
    }
    const auto mine = expected.begin() + rank_ * n;
    const std::vector<std::uint8_t> piece(mine, mine + n);
    std::vector<std::uint8_t> all(expected.size(), 0xee);
    group_->all_gather(exec_, piece.data(), all.data(), n);
    ASSERT_EQ(all, expected) << n;

    std::fill(all.begin(), all.end(), std::uint8_t{0xee});
    std::copy(mine, mine + n, all.begin() + rank_ * n);
    group_->all_gather(exec_, all.data() + rank_ * n, all.data(), n);
    ASSERT_EQ(all, expected) << n << " in place";
  }
}

TEST_P(CollectivesTest, UnevenAndEmptyPiecesAreGathered) {
  for (const int shift : {0, 1, 2}) {
    std::vector<std::int64_t> bytes_of;
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < size_; ++r) {
      bytes_of.push_back(uneven(r + shift));
      for (std::int64_t i = 0; i < bytes_of.back(); ++i) expected.push_back(byte(r, 2, i));
    }
    std::vector<std::uint8_t> piece;
    for (std::int64_t i = 0; i < bytes_of[static_cast<std::size_t>(rank_)]; ++i) piece.push_back(byte(rank_, 2, i));
    std::vector<std::uint8_t> all(expected.size(), 0xee);
    group_->all_gather_v(exec_, piece.data(), all.data(), bytes_of);
    ASSERT_EQ(all, expected) << shift;
    std::vector<std::uint8_t> on_host(expected.size(), 0xee);
    group_->all_gather_v_host(piece.data(), on_host.data(), bytes_of);
    ASSERT_EQ(on_host, expected) << shift;
  }
}

TEST_P(CollectivesTest, EveryRankSendsEveryOtherItsOwnUnevenPiece) {
  const auto length = [this](int from, int to) { return uneven(from * size_ + to + 1) + (from == to ? 3 : 0); };
  std::vector<std::int64_t> send_bytes;
  std::vector<std::int64_t> recv_bytes;
  std::vector<std::uint8_t> send;
  std::vector<std::uint8_t> expected;
  for (int r = 0; r < size_; ++r) {
    send_bytes.push_back(length(rank_, r));
    recv_bytes.push_back(length(r, rank_));
    for (std::int64_t i = 0; i < send_bytes.back(); ++i) send.push_back(byte(rank_, r, i));
    for (std::int64_t i = 0; i < recv_bytes.back(); ++i) expected.push_back(byte(r, rank_, i));
  }
  std::vector<std::uint8_t> recv(expected.size(), 0xee);
  group_->all_to_all_v(exec_, send.data(), send_bytes, recv.data(), recv_bytes);
  EXPECT_EQ(recv, expected);

  const std::vector<std::int64_t> nothing(static_cast<std::size_t>(size_), 0);
  group_->all_to_all_v(exec_, nullptr, nothing, nullptr, nothing);
}

TEST_P(CollectivesTest, BroadcastsReachAllFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    for (const std::int64_t n : {0, 1, 23, 24, 25, 5000}) {
      std::vector<std::uint8_t> expected;
      for (std::int64_t i = 0; i < n; ++i) expected.push_back(byte(root, 3, i));
      std::vector<std::uint8_t> data = rank_ == root ? expected : std::vector<std::uint8_t>(expected.size(), 0xee);
      group_->broadcast(exec_, data.data(), n, root);
      ASSERT_EQ(data, expected) << n << " from " << root;
    }
    EXPECT_EQ(group_->broadcast_host(rank_ == root ? std::string("text of ") + std::to_string(root) : "", root),
              "text of " + std::to_string(root));
  }
}

TEST_P(CollectivesTest, PiecesAreScatteredFromEveryRoot) {
  for (int root = 0; root < size_; ++root) {
    std::vector<std::int64_t> bytes_of;
    std::vector<std::uint8_t> all;
    std::vector<std::uint8_t> expected;
    for (int r = 0; r < size_; ++r) {
      bytes_of.push_back(uneven(r + root));
      for (std::int64_t i = 0; i < bytes_of.back(); ++i) {
        all.push_back(byte(root, r, i));
        if (r == rank_) expected.push_back(all.back());
      }
    }
    std::vector<std::uint8_t> mine(expected.size(), 0xee);
    group_->scatter_v_host(rank_ == root ? all.data() : nullptr, bytes_of, mine.data(), root);
    EXPECT_EQ(mine, expected) << root;
  }
}

TEST_P(CollectivesTest, SmallHostValuesAreReducedAndGathered) {
  std::vector<std::int64_t> values = {rank_, -rank_, 7};
  group_->all_reduce_host(values, Reduce::sum);
  const std::int64_t ranks = std::int64_t{size_} * (size_ - 1) / 2;
  EXPECT_THAT(values, ElementsAreArray({ranks, -ranks, std::int64_t{7} * size_}));
  EXPECT_EQ(group_->all_reduce_host(10 - rank_, Reduce::min), 11 - size_);
  EXPECT_EQ(group_->all_reduce_host(10 - rank_, Reduce::max), 10);

  const std::vector<double> squares = group_->all_gather_host(static_cast<double>(rank_) * rank_);
  for (int r = 0; r < size_; ++r) EXPECT_EQ(squares[static_cast<std::size_t>(r)], static_cast<double>(r) * r);

  const std::string mine(static_cast<std::size_t>(uneven(rank_)), static_cast<char>('a' + rank_));
  const std::vector<std::string> texts = group_->gather_host(mine, size_ - 1);
  if (rank_ != size_ - 1) {
    EXPECT_TRUE(texts.empty());
  } else {
    ASSERT_EQ(std::ssize(texts), size_);
    for (int r = 0; r < size_; ++r) {
      EXPECT_EQ(texts[static_cast<std::size_t>(r)],
                std::string(static_cast<std::size_t>(uneven(r)), static_cast<char>('a' + r)));
    }
  }
}

TEST_P(CollectivesTest, ASplitGroupReducesOverItsOwnRanksOnly) {
  const std::unique_ptr<Collectives> half = group_->split(rank_ % 2, -rank_);  // descending ranks
  EXPECT_EQ(half->size(), (size_ + 1 - rank_ % 2) / 2);
  EXPECT_EQ(half->rank(), half->size() - 1 - rank_ / 2);
  std::int64_t expected = 0;
  for (int r = rank_ % 2; r < size_; r += 2) expected += r;
  EXPECT_EQ(half->all_reduce_host(rank_, Reduce::sum), expected);
}

TEST_P(CollectivesTest, ResultsAreVisibleToWorkEnqueuedAfter) {
  const std::int64_t n = large(100000);
  DeviceView<std::int64_t*> values("values", static_cast<std::size_t>(n));
  for (int round = 1; round <= 3; ++round) {
    const int rank = rank_;
    Kokkos::parallel_for("write", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec_, 0, n),
                         [=](std::int64_t i) { values(static_cast<std::size_t>(i)) = i * round + rank; });
    group_->all_reduce_sum(exec_, values.data(), n);
    std::int64_t wrong = 0;
    const std::int64_t size = size_;
    Kokkos::parallel_reduce(
        "check", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec_, 0, n),
        [=](std::int64_t i, std::int64_t& count) {
          count += values(static_cast<std::size_t>(i)) != size * i * round + size * (size - 1) / 2;
        },
        wrong);
    group_->wait(exec_);
    EXPECT_EQ(wrong, 0);
  }
}

TEST_P(CollectivesTest, CountsThatCannotBeAreRefusedBeforeAnythingIsSent) {
  if (GetParam() == Kind::single) return;
  std::vector<std::int64_t> too_many(static_cast<std::size_t>(size_) + 1, 1);
  std::vector<std::int64_t> negative(static_cast<std::size_t>(size_), -1);
  char data[64] = {};
  EXPECT_ANY_THROW(group_->all_gather_v(exec_, data, data, too_many));
  EXPECT_ANY_THROW(group_->all_gather_v(exec_, data, data, negative));
}

std::string name_of(const ::testing::TestParamInfo<Kind>& kind) {
  constexpr const char* kNames[] = {"SharedMemory", "Messages", "TinyMessages", "NeverDirect", "Single"};
  return kNames[static_cast<int>(kind.param)];
}

INSTANTIATE_TEST_SUITE_P(Over, CollectivesTest,
                         ::testing::Values(Kind::mpi, Kind::messages, Kind::tiny_messages, Kind::never_direct,
                                           Kind::single),
                         name_of);

TEST_P(CollectivesTest, CountersAreSharedWithoutTheOthersTakingPart) {
  constexpr int kTakes = 500;
  const std::unique_ptr<SharedCounters> counters = group_->shared_counters(3);
  EXPECT_EQ(counters->read(1), 0);
  // Every number is taken by one rank, and each rank's own ascend.
  std::vector<std::int64_t> taken;
  for (int i = 0; i < kTakes; ++i) taken.push_back(counters->fetch_add(0, 1));
  EXPECT_TRUE(std::is_sorted(taken.begin(), taken.end()));
  counters->fetch_or(1, std::int64_t{1} << group_->rank());
  group_->barrier();
  EXPECT_EQ(counters->read(0), std::int64_t{kTakes} * group_->size());
  EXPECT_EQ(counters->read(1), (std::int64_t{1} << group_->size()) - 1);
  EXPECT_EQ(counters->read(2), 0);
  std::vector<std::int64_t> all(static_cast<std::size_t>(kTakes * group_->size()));
  const std::vector<std::int64_t> bytes_of(static_cast<std::size_t>(group_->size()), kTakes * 8);
  group_->all_gather_v_host(taken.data(), all.data(), bytes_of);
  std::sort(all.begin(), all.end());
  for (std::size_t i = 0; i < all.size(); ++i) ASSERT_EQ(all[i], static_cast<std::int64_t>(i));
}

TEST(RankGrid, EveryRankKnowsItsPlaceAndItsNeighbours) {
  const std::unique_ptr<Collectives> world = make_world_collectives();
  for (int tensor = 1; tensor <= world->size(); ++tensor) {
    for (int groups = 1; groups * tensor <= world->size(); ++groups) {
      if (world->size() % (groups * tensor) != 0) continue;
      const Layout layout{world->size() / (groups * tensor), groups, tensor};
      const RankGrid grid = make_rank_grid(*world, layout);
      EXPECT_EQ((grid.replica_id * groups + grid.group_id) * tensor + grid.tensor_id, world->rank());
      EXPECT_EQ(grid.tensor->size(), tensor);
      EXPECT_EQ(grid.tensor->rank(), grid.tensor_id);
      EXPECT_EQ(grid.replica->size(), groups * tensor);
      EXPECT_EQ(grid.peers->size(), groups);
      EXPECT_EQ(grid.peers->rank(), grid.group_id);
      EXPECT_EQ(grid.copies->size(), layout.replicas);
      EXPECT_EQ(grid.copies->rank(), grid.replica_id);
    }
  }
}

}  // namespace
}  // namespace bathys::parallel
