// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/dataset_table.hpp"
#include "weights/shard_model.hpp"

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

// In which order the payload of a model moves.  Every rank derives the same schedule from the table, so nothing about
// it is sent.
namespace bathys::weights {

// A dataset as rows: all axes but the last flattened ([E, N, K] has E*N rows of K), a vector has rows of one element.
struct RowShape {
  std::int64_t rows = 0;
  std::int64_t row_bytes = 0;
};
[[nodiscard]] RowShape row_shape(const catalog::DatasetSpec& dataset);

// What a rank holds of a dataset, in rows: rows [first, last) of them, bytes [byte_begin, byte_end) of each row.
struct RowSlice {
  std::int64_t first = 0;
  std::int64_t last = 0;
  std::int64_t byte_begin = 0;
  std::int64_t byte_end = 0;
  [[nodiscard]] std::int64_t row_bytes() const { return byte_end - byte_begin; }
  [[nodiscard]] bool empty() const { return first >= last || byte_begin >= byte_end; }
};
[[nodiscard]] RowSlice row_slice(const catalog::DatasetSpec& dataset, const catalog::Slice& slice);

// One checksummed piece of a dataset.  Rows that a piece boundary cuts belong to the piece in which they end.
struct Part {
  std::size_t dataset = 0;  // position in the table
  std::uint64_t piece = 0;
  std::int64_t first_row = 0;  // rows [first_row, last_row) end within this piece
  std::int64_t last_row = 0;
  std::int64_t bytes = 0;       // of the piece
  std::int64_t head_bytes = 0;  // of row first_row that lie in the piece before
};

// What is read, sent and handed over at once: pieces of one file, in table order, of at most io::kPieceBytes together.
// A dataset has at most one piece in a round; only the first part can have a head.
struct Round {
  std::string file;
  std::vector<Part> parts;
};

using Wanted = std::function<bool(const catalog::DatasetSpec&)>;

// All rounds of the wanted datasets.  `rows_of`, when given, limits a dataset to the pieces that hold any of a slice's
// rows.
[[nodiscard]] std::vector<Round> make_schedule(
    const std::vector<catalog::DatasetSpec>& table, const Wanted& wanted,
    const std::function<RowSlice(const catalog::DatasetSpec&)>& rows_of = {});

}  // namespace bathys::weights
