// SPDX-License-Identifier: Apache-2.0
#include "weights/schedule.hpp"

#include "io/shard_index.hpp"

#include <algorithm>

namespace bathys::weights {
namespace {

constexpr auto kPiece = static_cast<std::int64_t>(io::kPieceBytes);

Part make_part(std::size_t dataset, std::int64_t total_bytes, std::int64_t row_bytes, std::int64_t piece) {
  const std::int64_t begin = piece * kPiece;
  const std::int64_t end = std::min(begin + kPiece, total_bytes);
  return {dataset,          static_cast<std::uint64_t>(piece), begin / row_bytes, end / row_bytes, end - begin,
          begin % row_bytes};
}

}  // namespace

RowShape row_shape(const catalog::DatasetSpec& dataset) {
  const std::int64_t row_elements = dataset.shape.size() > 1 ? dataset.shape.back() : 1;
  return {dataset.elements() / row_elements, row_elements * catalog::element_bytes(dataset.dtype)};
}

RowSlice row_slice(const catalog::DatasetSpec& dataset, const catalog::Slice& slice) {
  const RowShape shape = row_shape(dataset);
  if (slice.axis == 0) {
    const std::int64_t rows_per_entry = shape.rows / dataset.shape[0];
    return {slice.begin * rows_per_entry, slice.end * rows_per_entry, 0, shape.row_bytes};
  }
  const std::int64_t element = catalog::element_bytes(dataset.dtype);
  return {0, shape.rows, slice.begin * element, slice.end * element};
}

std::vector<Round> make_schedule(const std::vector<catalog::DatasetSpec>& table, const Wanted& wanted,
                                 const std::function<RowSlice(const catalog::DatasetSpec&)>& rows_of) {
  std::vector<Round> rounds;
  std::int64_t round_bytes = kPiece;
  for (std::size_t i = 0; i < table.size(); ++i) {
    const catalog::DatasetSpec& dataset = table[i];
    if (wanted && !wanted(dataset)) continue;
    const RowShape shape = row_shape(dataset);
    std::int64_t piece = 0;
    std::int64_t end_piece = static_cast<std::int64_t>(io::piece_count(static_cast<std::uint64_t>(dataset.bytes())));
    if (rows_of) {
      const RowSlice rows = rows_of(dataset);
      if (rows.empty()) continue;
      piece = rows.first * shape.row_bytes / kPiece;
      end_piece = (rows.last * shape.row_bytes + kPiece - 1) / kPiece;
    }
    for (; piece < end_piece; ++piece) {
      const Part part = make_part(i, dataset.bytes(), shape.row_bytes, piece);
      if (rounds.empty() || rounds.back().file != dataset.file || round_bytes + part.bytes > kPiece) {
        rounds.push_back({dataset.file, {}});
        round_bytes = 0;
      }
      rounds.back().parts.push_back(part);
      round_bytes += part.bytes;
    }
  }
  return rounds;
}

}  // namespace bathys::weights
