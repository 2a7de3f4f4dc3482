// SPDX-License-Identifier: Apache-2.0
#include "weights/loader.hpp"

#include <optional>

namespace bathys::weights {
namespace {

class DirectLoader : private Loader {
 public:
  using Loader::Loader;

  LoadReport run() {
    const auto index = catalog::index_by_name(model_.table);
    const auto rounds = make_schedule(model_.table, options_.wanted, [&](const catalog::DatasetSpec& dataset) {
      return my_slice(index.at(dataset.name));
    });
    std::vector<const Round*> order;
    for (const Round& round : rounds) order.push_back(&round);
    std::optional<RoundReader> reader;
    if (reads()) reader.emplace(model_, order, options_);
    for (const Round* round : order) {
      if (has_peers()) {
        share(reader, *round);
      } else {
        feed(*reader, *round);
      }
      if (read_failed_) break;
      if (options_.progress) options_.progress();
    }
    use_sink([this] {
      if (read_failed_) return;
      begin_empty(model_.table.size());
      feeder_.finish();
    });
    parallel::agree_on(groups_.world, cause_);
    report_.bytes_held = feeder_.bytes();
    if (reader) take_reader_times(*reader);
    return report_;
  }

 private:
  void feed(RoundReader& reader, const Round& round) {
    const auto rows = read(reader);
    if (read_failed_) return;
    use_sink([&] {
      for (std::size_t i = 0; i < round.parts.size(); ++i) {
        begin_empty(round.parts[i].dataset);
        feed_from_rows(round.parts[i], rows[i]);
      }
    });
  }

  // block_ = [state][this rank's sections of the round], which its peers hold as well.
  void share(std::optional<RoundReader>& reader, const Round& round) {
    std::int64_t bytes = kStateBytes;
    for (const Part& part : round.parts) bytes += section_bytes(part, rank_);
    block_.resize(static_cast<std::size_t>(bytes));
    if (reader) {
      const auto rows = read(*reader);
      std::byte* out = block_.data() + kStateBytes;
      for (std::size_t i = 0; i < rows.size(); ++i) {
        const Part& part = round.parts[i];
        out = pack(part, row_bytes(part), rows[i].data(), my_slice(part.dataset), out);
      }
      set_state(block_);
    }
    const Timer timer;
    share_with_peers(block_);
    report_.exchange_s += timer.seconds();
    if (read_failed_) return;
    use_sink([&] {
      const std::byte* from = block_.data() + kStateBytes;
      for (const Part& part : round.parts) {
        begin_empty(part.dataset);
        const RowSlice slice = my_slice(part.dataset);
        feeder_.feed(part.dataset, section_of(part, slice), slice, from);
        from += section_bytes(part, rank_);
      }
    });
  }

  // Datasets of which this rank holds nothing are begun and ended in their turn as well.
  void begin_empty(std::size_t to) {
    for (; next_dataset_ < to; ++next_dataset_) {
      if (!options_.wanted || options_.wanted(model_.table[next_dataset_])) feeder_.advance(next_dataset_);
    }
  }

  std::size_t next_dataset_ = 0;
  std::vector<std::byte> block_;
};

}  // namespace

LoadReport load_directly(const LoadGroups& groups, const ShardModel& model,
                         const std::vector<catalog::RankPlace>& places, WeightSink& sink, const LoadOptions& options) {
  return DirectLoader(groups, model, places, sink, options).run();
}

}  // namespace bathys::weights
