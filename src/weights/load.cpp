// SPDX-License-Identifier: Apache-2.0
#include "weights/load.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "parallel/agree.hpp"
#include "weights/round_reader.hpp"

#include <algorithm>
#include <cstring>
#include <exception>
#include <optional>
#include <string>
#include <utility>

namespace bathys::weights {
namespace {

// What would stop every rank later, in the middle of an exchange.
void require_loadable(const ShardModel& model, const std::vector<catalog::RankPlace>& places) {
  for (const catalog::DatasetSpec& dataset : model.table) {
    for (const catalog::RankPlace& place : places) static_cast<void>(catalog::local_slice(dataset, place));
    const std::int64_t row_bytes = row_shape(dataset).row_bytes;
    require(row_bytes <= static_cast<std::int64_t>(io::kPieceBytes), ExitCode::usage,
            "{}: a row of {} bytes is longer than a piece of {}: such a model cannot be loaded", dataset.name,
            row_bytes, io::kPieceBytes);
  }
}

// The rows of a part that a slice has.
struct Section {
  std::int64_t first = 0;
  std::int64_t last = 0;
  [[nodiscard]] std::int64_t rows() const { return std::max<std::int64_t>(last - first, 0); }
};

Section section_of(const Part& part, const RowSlice& slice) {
  if (slice.empty()) return {};
  return {std::max(part.first_row, slice.first), std::min(part.last_row, slice.last)};
}

// Copies a slice's section out of the rows of a part; returns the end of the copy.
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

// What both ways of loading share.
class Loader {
 public:
  Loader(parallel::Collectives& world, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
         WeightSink& sink, const LoadOptions& options)
      : world_(world),
        model_(model),
        places_(places),
        options_(options),
        mine_(places[static_cast<std::size_t>(world.rank())]),
        feeder_(model, mine_, sink) {}

 protected:
  [[nodiscard]] RowSlice slice_of(std::size_t dataset, std::size_t rank) const {
    return row_slice(model_.table[dataset], catalog::local_slice(model_.table[dataset], places_[rank]));
  }
  [[nodiscard]] RowSlice my_slice(std::size_t dataset) const {
    return slice_of(dataset, static_cast<std::size_t>(world_.rank()));
  }
  [[nodiscard]] std::int64_t row_bytes(const Part& part) const {
    return row_shape(model_.table[part.dataset]).row_bytes;
  }

  // A section straight from a part's rows, packed first where the slice cuts columns.
  void feed_from_rows(const Part& part, std::span<const std::byte> rows) {
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

  void take_reader_times(const RoundReader& reader) {
    report_.bytes_read = reader.bytes_read();
    report_.open_s = reader.open_s();
    report_.read_s = reader.read_s();
  }

  parallel::Collectives& world_;
  const ShardModel& model_;
  const std::vector<catalog::RankPlace>& places_;
  const LoadOptions& options_;
  catalog::RankPlace mine_;
  Feeder feeder_;
  std::vector<std::byte> packed_;
  LoadReport report_;
};

// Every rank for itself, no communication before the end.
class DirectLoader : private Loader {
 public:
  using Loader::Loader;

  LoadReport run() {
    parallel::agree(world_, [this] { read_all(); });
    return report_;
  }

 private:
  void read_all() {
    const auto index = catalog::index_by_name(model_.table);
    const auto rounds = make_schedule(model_.table, options_.wanted, [&](const catalog::DatasetSpec& dataset) {
      return my_slice(index.at(dataset.name));
    });
    std::vector<const Round*> order;
    for (const Round& round : rounds) order.push_back(&round);
    RoundReader reader(model_, order, options_.checksums);
    std::size_t next_dataset = 0;
    for (const Round* round : order) {
      Timer timer;
      const auto rows = reader.next();
      report_.wait_s += timer.restart();
      for (std::size_t i = 0; i < round->parts.size(); ++i) {
        next_dataset = begin_empty(next_dataset, round->parts[i].dataset);
        feed_from_rows(round->parts[i], rows[i]);
      }
      report_.sink_s += timer.seconds();
      if (options_.progress) options_.progress();
    }
    begin_empty(next_dataset, model_.table.size());
    feeder_.finish();
    report_.bytes_held = feeder_.bytes();
    take_reader_times(reader);
  }

  // Datasets of which this rank holds nothing are begun and ended in their turn as well.
  std::size_t begin_empty(std::size_t from, std::size_t to) {
    for (; from < to; ++from) {
      if (!options_.wanted || options_.wanted(model_.table[from])) feeder_.advance(from);
    }
    return to;
  }
};

// Readers read and send: per round one broadcast of what all ranks hold, with the reader's state in front, and one
// scatter of the rest.
class SendingLoader : private Loader {
 public:
  using Loader::Loader;

  LoadReport run() {
    const auto rounds = make_schedule(model_.table, options_.wanted);
    assign_readers(rounds);
    std::vector<const Round*> mine;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (reader_of_[i] == world_.rank()) mine.push_back(&rounds[i]);
    }
    RoundReader reader(model_, mine, options_.checksums);
    for (std::size_t i = 0; i < rounds.size() && !read_failed_; ++i) {
      if (world_.size() == 1) {
        feed_alone(reader, rounds[i]);
      } else {
        exchange(reader, rounds[i], reader_of_[i]);
      }
      if (options_.progress) options_.progress();
    }
    if (!read_failed_) use_sink([this] { feeder_.finish(); });
    parallel::agree_on(world_, cause_);
    report_.bytes_held = feeder_.bytes();
    take_reader_times(reader);
    return report_;
  }

 private:
  // Files in turn to the readers, which are spread evenly over the ranks.
  void assign_readers(const std::vector<Round>& rounds) {
    const int readers = std::clamp(options_.readers, 1, world_.size());
    int file = -1;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (i == 0 || rounds[i].file != rounds[i - 1].file) ++file;
      reader_of_.push_back(static_cast<int>(std::int64_t{file % readers} * world_.size() / readers));
    }
  }

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

  // The round's rows on its reader; a failure becomes this rank's cause.
  std::span<const std::span<const std::byte>> read(RoundReader& reader) {
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

  void feed_alone(RoundReader& reader, const Round& round) {
    const auto rows = read(reader);
    if (read_failed_) return;
    use_sink([&] {
      for (std::size_t i = 0; i < round.parts.size(); ++i) feed_from_rows(round.parts[i], rows[i]);
    });
  }

  [[nodiscard]] bool replicated(const Part& part) const {
    return model_.table[part.dataset].rule == catalog::ShardRule::replicated;
  }

  // Bytes of a rank's sections of the round's cut parts.
  [[nodiscard]] std::int64_t cut_bytes(const Round& round, std::size_t rank) const {
    std::int64_t bytes = 0;
    for (const Part& part : round.parts) {
      if (replicated(part)) continue;
      const RowSlice slice = slice_of(part.dataset, rank);
      bytes += section_of(part, slice).rows() * slice.row_bytes();
    }
    return bytes;
  }

  void exchange(RoundReader& reader, const Round& round, int root) {
    const bool reads = world_.rank() == root;
    std::span<const std::span<const std::byte>> rows;
    if (reads) rows = read(reader);
    const Timer timer;
    broadcast_shared(round, root, rows);
    if (read_failed_) return;
    const std::byte* cut = scatter_cut(round, root, rows);
    report_.exchange_s += timer.seconds();
    use_sink([&] { feed_received(round, cut); });
  }

  // shared_ = [8 bytes: 0, or 1 when the reader failed][rows of the replicated parts].
  void broadcast_shared(const Round& round, int root, std::span<const std::span<const std::byte>> rows) {
    std::int64_t bytes = kStateBytes;
    for (const Part& part : round.parts)
      bytes += replicated(part) ? (part.last_row - part.first_row) * row_bytes(part) : 0;
    shared_.resize(static_cast<std::size_t>(bytes));
    if (world_.rank() == root) {
      std::int64_t state = read_failed_ ? 1 : 0;
      std::memcpy(shared_.data(), &state, sizeof state);
      std::byte* out = shared_.data() + kStateBytes;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (replicated(round.parts[i])) out = std::copy(rows[i].begin(), rows[i].end(), out);
      }
    }
    world_.broadcast_host(shared_.data(), bytes, root);
    std::int64_t state = 0;
    std::memcpy(&state, shared_.data(), sizeof state);
    read_failed_ = state != 0;
  }

  // Sends every rank its sections of the cut parts; returns this rank's, one after another.
  const std::byte* scatter_cut(const Round& round, int root, std::span<const std::span<const std::byte>> rows) {
    const auto ranks = static_cast<std::size_t>(world_.size());
    std::vector<std::int64_t> bytes_of(ranks);
    std::int64_t total = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) total += bytes_of[rank] = cut_bytes(round, rank);
    if (total == 0) return nullptr;
    received_.resize(static_cast<std::size_t>(bytes_of[static_cast<std::size_t>(world_.rank())]));
    const std::byte* outgoing = nullptr;
    if (world_.rank() == root) outgoing = outgoing_bytes(round, rows, total);
    world_.scatter_v_host(outgoing, bytes_of, received_.data(), root);
    return received_.data();
  }

  // What the ranks' sections look like one rank after another: on the reader.
  const std::byte* outgoing_bytes(const Round& round, std::span<const std::span<const std::byte>> rows,
                                  std::int64_t total) {
    if (round.parts.size() == 1 && lies_in_rank_order(round.parts[0], total)) return rows[0].data();
    packed_.resize(static_cast<std::size_t>(total));
    std::byte* out = packed_.data();
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_.size()); ++rank) {
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Part& part = round.parts[i];
        if (!replicated(part)) out = pack(part, row_bytes(part), rows[i].data(), slice_of(part.dataset, rank), out);
      }
    }
    return packed_.data();
  }

  // Whether the rows of a part, as they are, consist of the ranks' sections in rank order: the usual case of experts
  // and tables.
  [[nodiscard]] bool lies_in_rank_order(const Part& part, std::int64_t total) const {
    std::int64_t row = part.first_row;
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(world_.size()); ++rank) {
      const Section section = section_of(part, slice_of(part.dataset, rank));
      if (section.rows() == 0) continue;
      if (section.first != row) return false;
      row = section.last;
    }
    return total == (part.last_row - part.first_row) * row_bytes(part);
  }

  void feed_received(const Round& round, const std::byte* cut) {
    const std::byte* shared = shared_.data() + kStateBytes;
    for (const Part& part : round.parts) {
      const RowSlice slice = my_slice(part.dataset);
      const Section section = section_of(part, slice);
      const std::byte*& from = replicated(part) ? shared : cut;
      feeder_.feed(part.dataset, section, slice, from);
      if (section.rows() > 0) from += section.rows() * slice.row_bytes();
    }
  }

  static constexpr std::int64_t kStateBytes = sizeof(std::int64_t);
  std::vector<int> reader_of_;  // of each round
  std::vector<std::byte> shared_;
  std::vector<std::byte> received_;
  bool read_failed_ = false;
  std::optional<parallel::Cause> cause_;
};

}  // namespace

std::vector<catalog::RankPlace> one_group_places(int ranks) {
  std::vector<catalog::RankPlace> places;
  for (int rank = 0; rank < ranks; ++rank) places.push_back(catalog::RankPlace::one_group(ranks, rank));
  return places;
}

LoadReport load(parallel::Collectives& world, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options) {
  require(places.size() == static_cast<std::size_t>(world.size()), ExitCode::internal, "{} places given for {} ranks",
          places.size(), world.size());
  parallel::agree(world, [&] { require_loadable(model, places); });
  const Timer timer;
  LoadReport report = options.direct ? DirectLoader(world, model, places, sink, options).run()
                                     : SendingLoader(world, model, places, sink, options).run();
  report.total_s = timer.seconds();
  return report;
}

}  // namespace bathys::weights
