// SPDX-License-Identifier: Apache-2.0
#include "weights/schedule.hpp"

#include "io/shard_index.hpp"

#include <map>

#include <gtest/gtest.h>

namespace bathys::weights {
namespace {

using catalog::DatasetSpec;
using catalog::Dtype;
using catalog::ShardRule;

DatasetSpec dataset(std::string name, std::string file, std::vector<std::int64_t> shape, Dtype dtype, ShardRule rule,
                    std::int64_t units) {
  DatasetSpec spec;
  spec.name = std::move(name);
  spec.file = std::move(file);
  spec.shape = std::move(shape);
  spec.dtype = dtype;
  spec.rule = rule;
  spec.units = units;
  spec.tensors = {spec.name};
  return spec;
}

TEST(RowShape, FlattensAllAxesButTheLast) {
  const auto stack = dataset("a", "f", {4, 6, 10}, Dtype::i8, ShardRule::experts, 4);
  EXPECT_EQ(row_shape(stack).rows, 24);
  EXPECT_EQ(row_shape(stack).row_bytes, 10);
  const auto vector = dataset("a", "f", {8}, Dtype::f32, ShardRule::rows, 8);
  EXPECT_EQ(row_shape(vector).rows, 8);
  EXPECT_EQ(row_shape(vector).row_bytes, 4);
}

TEST(RowSlice, IsTheSliceInRows) {
  const auto stack = dataset("a", "f", {4, 6, 10}, Dtype::i8, ShardRule::experts, 4);
  const RowSlice experts = row_slice(stack, {0, 1, 3, 120});
  EXPECT_EQ(experts.first, 6);
  EXPECT_EQ(experts.last, 18);
  EXPECT_EQ(experts.row_bytes(), 10);
  const auto matrix = dataset("a", "f", {6, 8}, Dtype::bf16, ShardRule::columns, 4);
  const RowSlice columns = row_slice(matrix, {1, 2, 4, 24});
  EXPECT_EQ(columns.first, 0);
  EXPECT_EQ(columns.last, 6);
  EXPECT_EQ(columns.byte_begin, 4);
  EXPECT_EQ(columns.byte_end, 8);
  EXPECT_TRUE(row_slice(stack, {0, 2, 2, 0}).empty());
}

TEST(Schedule, CoversEveryRowOnceInPiecesOfOneFile) {
  constexpr auto kPiece = static_cast<std::int64_t>(io::kPieceBytes);
  // Row lengths that do not divide a piece, datasets of many pieces, of exactly one, and small ones in between.
  const std::vector<DatasetSpec> table = {
      dataset("small0", "a", {7}, Dtype::f32, ShardRule::replicated, 1),
      dataset("large", "a", {400'000, 100}, Dtype::bf16, ShardRule::rows, 400'000),
      dataset("small1", "a", {3, 5}, Dtype::i8, ShardRule::replicated, 1),
      dataset("exact", "a", {kPiece / 64, 64}, Dtype::i8, ShardRule::rows, 8),
      dataset("small2", "b", {11}, Dtype::bf16, ShardRule::replicated, 1),
      dataset("wide", "b", {5, kPiece - 1}, Dtype::i8, ShardRule::columns, 1),
  };
  const auto rounds = make_schedule(table, {});
  std::map<std::size_t, std::int64_t> rows;
  std::map<std::size_t, std::int64_t> bytes;
  std::size_t at = 0;
  for (const Round& round : rounds) {
    std::int64_t size = 0;
    for (std::size_t i = 0; i < round.parts.size(); ++i) {
      const Part& part = round.parts[i];
      const RowShape shape = row_shape(table[part.dataset]);
      EXPECT_EQ(table[part.dataset].file, round.file);
      EXPECT_GE(part.dataset, at);
      at = part.dataset;
      EXPECT_EQ(part.first_row, rows[part.dataset]);
      rows[part.dataset] = part.last_row;
      EXPECT_EQ(static_cast<std::int64_t>(part.piece) * kPiece, bytes[part.dataset]);
      EXPECT_EQ(part.head_bytes, bytes[part.dataset] - part.first_row * shape.row_bytes);
      EXPECT_TRUE(part.head_bytes == 0 || i == 0);
      bytes[part.dataset] += part.bytes;
      size += part.bytes;
    }
    EXPECT_LE(size, kPiece);
    EXPECT_GT(size, 0);
  }
  for (std::size_t i = 0; i < table.size(); ++i) {
    EXPECT_EQ(rows[i], row_shape(table[i]).rows) << table[i].name;
    EXPECT_EQ(bytes[i], table[i].bytes()) << table[i].name;
  }
  const auto wanted = make_schedule(table, [](const DatasetSpec& spec) { return spec.name == "exact"; });
  ASSERT_EQ(wanted.size(), 1U);
  EXPECT_EQ(wanted[0].parts.size(), 1U);
}

TEST(Schedule, OfASliceHasThePiecesThatHoldItsRowsAlone) {
  const std::vector<DatasetSpec> table = {dataset("large", "a", {400'000, 100}, Dtype::bf16, ShardRule::rows, 400'000)};
  const auto pieces_of = [&](std::int64_t first, std::int64_t last) {
    std::vector<std::uint64_t> pieces;
    for (const Round& round : make_schedule(table, {}, [&](const DatasetSpec&) {
           return RowSlice{first, last, 0, 200};
         })) {
      for (const Part& part : round.parts) pieces.push_back(part.piece);
    }
    return pieces;
  };
  using Pieces = std::vector<std::uint64_t>;
  // 16 MiB are 83,886 rows and 16 bytes.
  EXPECT_EQ(pieces_of(0, 83'886), Pieces{0});
  EXPECT_EQ(pieces_of(83'886, 83'887), (Pieces{0, 1}));
  EXPECT_EQ(pieces_of(83'887, 90'000), Pieces{1});
  EXPECT_EQ(pieces_of(5, 5), Pieces{});
  EXPECT_EQ(pieces_of(0, 400'000), (Pieces{0, 1, 2, 3, 4}));
}

}  // namespace
}  // namespace bathys::weights
