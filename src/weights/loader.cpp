// SPDX-License-Identifier: Apache-2.0
#include "weights/loader.hpp"

#include <algorithm>
#include <cstring>

namespace bathys::weights {

Section section_of(const Part& part, const RowSlice& slice) {
  if (slice.empty()) return {};
  return {std::max(part.first_row, slice.first), std::min(part.last_row, slice.last)};
}

std::byte* pack(const Part& part, std::int64_t row_bytes, const std::byte* rows, const RowSlice& slice,
                std::byte* out) {
  const Section section = section_of(part, slice);
  const std::int64_t cut = slice.row_bytes();
  if (section.rows() == 0) return out;
  const std::byte* from = rows + (section.first - part.first_row) * row_bytes + slice.byte_begin;
  if (cut == row_bytes) {
    std::memcpy(out, from, static_cast<std::size_t>(section.rows() * row_bytes));
  } else {
    for (std::int64_t row = 0; row < section.rows(); ++row) {
      std::memcpy(out + row * cut, from + row * row_bytes, static_cast<std::size_t>(cut));
    }
  }
  return out + section.rows() * cut;
}

Loader::Loader(const LoadGroups& groups, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
               WeightSink& sink, const LoadOptions& options)
    : groups_(groups),
      model_(model),
      places_(places),
      options_(options),
      rank_(static_cast<std::size_t>(groups.replica.rank())),
      mine_(places[rank_]),
      feeder_(model, mine_, sink) {}

RowSlice Loader::slice_of(std::size_t dataset, std::size_t rank) const {
  return row_slice(model_.table[dataset], catalog::local_slice(model_.table[dataset], places_[rank]));
}

RowSlice Loader::my_slice(std::size_t dataset) const { return slice_of(dataset, rank_); }

std::int64_t Loader::row_bytes(const Part& part) const { return row_shape(model_.table[part.dataset]).row_bytes; }

std::int64_t Loader::section_bytes(const Part& part, std::size_t rank) const {
  const RowSlice slice = slice_of(part.dataset, rank);
  return section_of(part, slice).rows() * slice.row_bytes();
}

std::span<const std::span<const std::byte>> Loader::read(RoundReader& reader) {
  const Timer timer;
  std::span<const std::span<const std::byte>> rows;
  try {
    rows = reader.next();
  } catch (...) {
    cause_ = parallel::cause_of(std::current_exception());
    read_failed_ = true;
  }
  report_.wait_s += timer.seconds();
  return rows;
}

void Loader::feed_from_rows(const Part& part, std::span<const std::byte> rows) {
  const RowSlice slice = my_slice(part.dataset);
  const Section section = section_of(part, slice);
  const std::byte* from = rows.data();
  if (section.rows() > 0 && slice.row_bytes() != row_bytes(part)) {
    packed_.resize(static_cast<std::size_t>(section.rows() * slice.row_bytes()));
    pack(part, row_bytes(part), rows.data(), slice, packed_.data());
    from = packed_.data();
  } else if (section.rows() > 0) {
    from += (section.first - part.first_row) * row_bytes(part);
  }
  feeder_.feed(part.dataset, section, slice, from);
}

void Loader::set_state(std::vector<std::byte>& block) const {
  const std::int64_t state = read_failed_ ? 1 : 0;
  std::memcpy(block.data(), &state, sizeof state);
}

void Loader::take_state(const std::vector<std::byte>& block) {
  std::int64_t state = 0;
  std::memcpy(&state, block.data(), sizeof state);
  read_failed_ = state != 0;
}

void Loader::share_with_peers(std::vector<std::byte>& out) {
  if (!has_peers()) return;
  groups_.peers->broadcast_host(out.data(), static_cast<std::int64_t>(out.size()), 0);
  take_state(out);
}

void Loader::take_reader_times(const RoundReader& reader) {
  report_.bytes_read = reader.bytes_read();
  report_.open_s = reader.open_s();
  report_.read_s = reader.read_s();
  report_.read_calls_s = reader.read_calls_s();
}

}  // namespace bathys::weights
