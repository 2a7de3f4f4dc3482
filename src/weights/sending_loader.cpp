// SPDX-License-Identifier: Apache-2.0
#include "weights/loader.hpp"

#include <algorithm>
#include <optional>

namespace bathys::weights {
namespace {

class SendingLoader : private Loader {
 public:
  SendingLoader(const LoadGroups& groups, const ShardModel& model, const std::vector<catalog::RankPlace>& places,
                WeightSink& sink, const LoadOptions& options)
      : Loader(groups, model, places, sink, options), replica_(groups.replica) {}

  LoadReport run() {
    const auto rounds = make_schedule(model_.table, options_.wanted);
    assign_readers(rounds);
    std::vector<const Round*> mine;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (reads() && reader_of_[i] == replica_.rank()) mine.push_back(&rounds[i]);
    }
    RoundReader reader(model_, mine, options_);
    for (std::size_t i = 0; i < rounds.size() && !read_failed_; ++i) {
      if (replica_.size() == 1 && !has_peers()) {
        feed_alone(reader, rounds[i]);
      } else {
        exchange(reader, rounds[i], reader_of_[i]);
      }
      if (options_.progress) options_.progress();
    }
    if (!read_failed_) use_sink([this] { feeder_.finish(); });
    parallel::agree_on(groups_.world, cause_);
    report_.bytes_held = feeder_.bytes();
    take_reader_times(reader);
    return report_;
  }

 private:
  // Files in turn to the readers, which are spread evenly over the ranks.
  void assign_readers(const std::vector<Round>& rounds) {
    const int readers = std::clamp(options_.readers, 1, replica_.size());
    int file = -1;
    for (std::size_t i = 0; i < rounds.size(); ++i) {
      if (i == 0 || rounds[i].file != rounds[i - 1].file) ++file;
      reader_of_.push_back(static_cast<int>(std::int64_t{file % readers} * replica_.size() / readers));
    }
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
    for (const Part& part : round.parts) bytes += replicated(part) ? 0 : section_bytes(part, rank);
    return bytes;
  }

  void exchange(RoundReader& reader, const Round& round, int root) {
    std::span<const std::span<const std::byte>> rows;
    if (reads() && replica_.rank() == root) rows = read(reader);
    const Timer timer;
    resize_for(round);
    if (reads()) {
      broadcast_shared(round, root, rows);
      if (!read_failed_) scatter_cut(round, root, rows);
    }
    share_with_peers(shared_);
    if (read_failed_) return;
    if (has_peers() && !received_.empty())
      groups_.peers->broadcast_host(received_.data(), static_cast<std::int64_t>(received_.size()), 0);
    report_.exchange_s += timer.seconds();
    use_sink([&] { feed_received(round, received_.data()); });
  }

  // shared_ = [state][rows of the replicated parts], received_ = this rank's sections of the cut ones.
  void resize_for(const Round& round) {
    std::int64_t bytes = kStateBytes;
    for (const Part& part : round.parts)
      bytes += replicated(part) ? (part.last_row - part.first_row) * row_bytes(part) : 0;
    shared_.resize(static_cast<std::size_t>(bytes));
    received_.resize(static_cast<std::size_t>(cut_bytes(round, rank_)));
  }

  void broadcast_shared(const Round& round, int root, std::span<const std::span<const std::byte>> rows) {
    if (replica_.rank() == root) {
      set_state(shared_);
      std::byte* out = shared_.data() + kStateBytes;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        if (replicated(round.parts[i])) out = std::copy(rows[i].begin(), rows[i].end(), out);
      }
    }
    replica_.broadcast_host(shared_.data(), static_cast<std::int64_t>(shared_.size()), root);
    take_state(shared_);
  }

  // Sends every rank its sections of the cut parts.
  void scatter_cut(const Round& round, int root, std::span<const std::span<const std::byte>> rows) {
    const auto ranks = static_cast<std::size_t>(replica_.size());
    std::vector<std::int64_t> bytes_of(ranks);
    std::int64_t total = 0;
    for (std::size_t rank = 0; rank < ranks; ++rank) total += bytes_of[rank] = cut_bytes(round, rank);
    if (total == 0) return;
    const std::byte* outgoing = nullptr;
    if (replica_.rank() == root) outgoing = outgoing_bytes(round, rows, total);
    replica_.scatter_v_host(outgoing, bytes_of, received_.data(), root);
  }

  // What the ranks' sections look like one rank after another: on the reader.
  const std::byte* outgoing_bytes(const Round& round, std::span<const std::span<const std::byte>> rows,
                                  std::int64_t total) {
    if (round.parts.size() == 1 && lies_in_rank_order(round.parts[0], total)) return rows[0].data();
    packed_.resize(static_cast<std::size_t>(total));
    std::byte* out = packed_.data();
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(replica_.size()); ++rank) {
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
    for (std::size_t rank = 0; rank < static_cast<std::size_t>(replica_.size()); ++rank) {
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

  parallel::Collectives& replica_;
  std::vector<int> reader_of_;  // of each round
  std::vector<std::byte> shared_;
  std::vector<std::byte> received_;
};

}  // namespace

LoadReport load_by_readers(const LoadGroups& groups, const ShardModel& model,
                           const std::vector<catalog::RankPlace>& places, WeightSink& sink,
                           const LoadOptions& options) {
  return SendingLoader(groups, model, places, sink, options).run();
}

}  // namespace bathys::weights
