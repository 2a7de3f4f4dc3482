// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "weights/load.hpp"
#include "weights/round_reader.hpp"

#include <cstddef>
#include <cstdint>
#include <exception>
#include <optional>
#include <span>
#include <vector>

// What the two ways of loading share; load.hpp is for callers.
namespace bathys::weights {

// The rows of a part that a slice has.
struct Section {
  std::int64_t first = 0;
  std::int64_t last = 0;
  [[nodiscard]] std::int64_t rows() const { return std::max<std::int64_t>(last - first, 0); }
};

[[nodiscard]] Section section_of(const Part& part, const RowSlice& slice);

// Copies a slice's section out of the rows of a part; returns the end of the copy.
std::byte* pack(const Part& part, std::int64_t row_bytes, const std::byte* rows, const RowSlice& slice, std::byte* out);

// Hands a rank's sections to its sink in table order, with begin and end where they belong.
class Feeder {
 public:
  Feeder(const ShardModel& model, const catalog::RankPlace& place, WeightSink& sink)
      : model_(model), place_(place), sink_(sink) {}

  // `rows` are the section's rows, cut and without gaps.
  void feed(std::size_t dataset, const Section& section, const RowSlice& slice, const std::byte* rows) {
    advance(dataset);
    if (section.rows() == 0) return;
    const auto bytes = static_cast<std::size_t>(section.rows() * slice.row_bytes());
    sink_.piece(model_.table[dataset], section.first - slice.first, section.rows(), {rows, bytes});
    report_bytes_ += bytes;
  }

  // Ends the dataset that is open and begins `dataset`, unless it is the one that is open.
  void advance(std::size_t dataset) {
    if (open_ == dataset) return;
    finish();
    sink_.begin(model_.table[dataset], catalog::local_slice(model_.table[dataset], place_));
    open_ = dataset;
  }

  void finish() {
    if (open_) sink_.end(model_.table[*open_]);
    open_.reset();
  }

  [[nodiscard]] std::uint64_t bytes() const { return report_bytes_; }

 private:
  const ShardModel& model_;
  const catalog::RankPlace& place_;
  WeightSink& sink_;
  std::optional<std::size_t> open_;
  std::uint64_t report_bytes_ = 0;
};

// One rank's part in a load.
class Loader {
 public:
  Loader(const LoadGroups& groups, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
         WeightSink& sink, const LoadOptions& options);

 protected:
  // Whether this rank's replica reads; the ranks of the others receive from their peers in it.
  [[nodiscard]] bool reads() const { return groups_.peers == nullptr || groups_.peers->rank() == 0; }
  [[nodiscard]] bool has_peers() const { return groups_.peers != nullptr && groups_.peers->size() > 1; }
  [[nodiscard]] RowSlice slice_of(std::size_t dataset, std::size_t rank) const;
  [[nodiscard]] RowSlice my_slice(std::size_t dataset) const;
  [[nodiscard]] std::int64_t row_bytes(const Part& part) const;
  // Bytes of a rank's section of a part.
  [[nodiscard]] std::int64_t section_bytes(const Part& part, std::size_t rank) const;

  // The round's rows; a failure becomes this rank's cause.
  std::span<const std::span<const std::byte>> read(RoundReader& reader);
  // Hands over a section straight from a part's rows, packed first where the slice cuts columns.
  void feed_from_rows(const Part& part, std::span<const std::byte> rows);
  // `out` = [state][..]: from the peer of the replica that reads to the others; sets read_failed_ from the state.
  void share_with_peers(std::vector<std::byte>& out);
  // Puts this rank's state in front of a block that is sent.
  void set_state(std::vector<std::byte>& block) const;
  void take_state(const std::vector<std::byte>& block);
  void take_reader_times(const RoundReader& reader);

  // A sink that fails on one rank must not leave the others waiting in a collective: the rank goes on without its sink,
  // and all stop at the end.
  template <class Work>
  void use_sink(Work&& work) {
    if (cause_) return;
    const Timer timer;
    try {
      work();
    } catch (...) {
      cause_ = parallel::cause_of(std::current_exception());
    }
    report_.sink_s += timer.seconds();
  }

  static constexpr std::int64_t kStateBytes = sizeof(std::int64_t);  // 0, or 1 when the reader failed

  const LoadGroups& groups_;
  const ShardModel& model_;
  const std::vector<catalog::RankPlace>& places_;
  const LoadOptions& options_;
  std::size_t rank_;  // in the replica
  catalog::RankPlace mine_;
  Feeder feeder_;
  std::vector<std::byte> packed_;
  LoadReport report_;
  bool read_failed_ = false;
  std::optional<parallel::Cause> cause_;
};

// Every rank of the replica that reads for itself; no communication but with peers before the end.
LoadReport load_directly(const LoadGroups& groups, const ShardModel& model,
                         const std::vector<catalog::RankPlace>& places, WeightSink& sink, const LoadOptions& options);

// Readers read and send: per round one broadcast of what all ranks hold, with the reader's state in front, and one
// scatter of the rest; then each rank sends what it has to its peers.
LoadReport load_by_readers(const LoadGroups& groups, const ShardModel& model,
                           const std::vector<catalog::RankPlace>& places, WeightSink& sink, const LoadOptions& options);

}  // namespace bathys::weights
