// SPDX-License-Identifier: Apache-2.0
#include "weights/load.hpp"

#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "convert/source_model.hpp"
#include "convert/synth.hpp"
#include "core/error.hpp"
#include "io/ranks_folder.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <utility>

#include <gtest/gtest.h>

namespace bathys::weights {
namespace {

namespace fs = std::filesystem;
using test::kNano;

// Checks that datasets arrive in table order, each slice whole and row by row, with the bytes that the checkpoint has
// there.
class CheckingSink : public WeightSink {
 public:
  CheckingSink(const convert::SourceModel& source, catalog::RankPlace place) : source_(source), place_(place) {}

  void begin(const catalog::DatasetSpec& dataset, const catalog::Slice& slice) override {
    ASSERT_FALSE(open_) << dataset.name;
    number_ = begun_++;
    while (!wanted(source_.table[number_])) number_ = begun_++;
    EXPECT_EQ(dataset.name, source_.table[number_].name);
    EXPECT_EQ(slice, catalog::local_slice(dataset, place_));
    rows_ = row_slice(dataset, slice);
    next_ = 0;
    open_ = true;
  }
  void piece(const catalog::DatasetSpec& dataset, std::int64_t first_row, std::int64_t n_rows,
             std::span<const std::byte> bytes) override {
    ASSERT_TRUE(open_);
    ASSERT_EQ(first_row, next_) << dataset.name;
    ASSERT_GT(n_rows, 0);
    ASSERT_EQ(static_cast<std::int64_t>(bytes.size()), n_rows * rows_.row_bytes()) << dataset.name;
    const std::int64_t whole = row_shape(dataset).row_bytes;
    std::vector<std::byte> expected(static_cast<std::size_t>(n_rows * whole));
    convert::DatasetSource(source_, number_)
        .read(static_cast<std::uint64_t>((rows_.first + first_row) * whole), expected);
    for (std::int64_t row = 0; row < n_rows; ++row) {
      const bool same =
          std::memcmp(bytes.data() + row * rows_.row_bytes(), expected.data() + row * whole + rows_.byte_begin,
                      static_cast<std::size_t>(rows_.row_bytes())) == 0;
      ASSERT_TRUE(same) << dataset.name << " row " << rows_.first + first_row + row;
    }
    next_ += n_rows;
    bytes_ += bytes.size();
  }
  void end(const catalog::DatasetSpec& dataset) override {
    ASSERT_TRUE(open_);
    EXPECT_EQ(next_, rows_.empty() ? 0 : rows_.last - rows_.first) << dataset.name;
    open_ = false;
    ++ended_;
  }

  Wanted wanted = [](const catalog::DatasetSpec&) { return true; };
  [[nodiscard]] std::size_t ended() const { return ended_; }
  [[nodiscard]] std::uint64_t bytes() const { return bytes_; }

 private:
  const convert::SourceModel& source_;
  catalog::RankPlace place_;
  RowSlice rows_;
  std::size_t number_ = 0;
  std::size_t begun_ = 0;
  std::size_t ended_ = 0;
  std::int64_t next_ = 0;
  std::uint64_t bytes_ = 0;
  bool open_ = false;
};

class IgnoringSink : public WeightSink {
 public:
  void begin(const catalog::DatasetSpec& /*dataset*/, const catalog::Slice& /*slice*/) override {}
  void piece(const catalog::DatasetSpec& /*d*/, std::int64_t /*first*/, std::int64_t /*n*/,
             std::span<const std::byte> /*b*/) override {}
  void end(const catalog::DatasetSpec& /*dataset*/) override {}
};

class Load : public test::RanksFolder {
 protected:
  void expect_loaded(const std::string& checkpoint, const std::string& shards, const LoadOptions& options) {
    const std::int64_t read = expect_loaded(convert::SourceModel(checkpoint), open_shards(*world_, shards), options);
    if (!options.direct && !options.wanted) {
      EXPECT_EQ(read, 7'439'252);  // once, by whichever ranks
    }
  }

  // Returns the bytes that all ranks read from files.
  std::int64_t expect_loaded(const convert::SourceModel& source, const ShardModel& model, const LoadOptions& options) {
    const auto places = one_group_places(world_->size());
    const auto& place = places[static_cast<std::size_t>(world_->rank())];
    CheckingSink sink(source, place);
    if (options.wanted) sink.wanted = options.wanted;
    const LoadReport report = load(*world_, model, places, sink, options);
    std::size_t wanted = 0;
    std::uint64_t held = 0;
    for (const auto& spec : source.table) {
      if (!sink.wanted(spec)) continue;
      ++wanted;
      held += static_cast<std::uint64_t>(catalog::local_slice(spec, place).bytes);
    }
    EXPECT_EQ(sink.ended(), wanted);
    EXPECT_EQ(sink.bytes(), held);
    EXPECT_EQ(report.bytes_held, held);
    return world_->all_reduce_host(static_cast<std::int64_t>(report.bytes_read), parallel::Reduce::sum);
  }

  // Expects the same Error on every rank.
  template <class Work>
  void expect_agreed(ExitCode code, std::initializer_list<std::string_view> words, Work&& work) {
    const std::string text = agreed_refusal(code, std::forward<Work>(work));
    for (const auto word : words) EXPECT_NE(text.find(word), std::string::npos) << text;
  }
};

TEST_F(Load, BringsEveryRankItsSlicesOfTheNanoModel) {
  on_first_rank([&] { convert::convert(kNano, path("n")); });
  LoadOptions options;
  expect_loaded(kNano, path("n"), options);
  options.readers = 2;
  expect_loaded(kNano, path("n"), options);
  options.readers = 99;
  options.checksums = false;
  expect_loaded(kNano, path("n"), options);
  options.direct = true;
  expect_loaded(kNano, path("n"), options);
  options.checksums = true;
  expect_loaded(kNano, path("n"), options);
  options.wanted = [](const catalog::DatasetSpec& spec) {
    return spec.part == catalog::Part::layer && spec.layer % 2 == 0;
  };
  expect_loaded(kNano, path("n"), options);
  options.direct = false;
  expect_loaded(kNano, path("n"), options);
}

// Rows of 96 bytes, which a piece of 16 MiB cuts, in tables of several pieces.
TEST_F(Load, BringsRowsThatPiecesCut) {
  std::int64_t rows = 0;
  const std::string config = test::nano_with_tables(30'000, 96);
  for (const auto n : config::read_model_config(config, "config").engram_num_embeddings) rows += n;
  on_first_rank([&] {
    test::write_random_checkpoint(path("ck"), config, kNano);
    convert::convert(path("ck"), path("n"));
  });
  LoadOptions options;
  options.wanted = [](const catalog::DatasetSpec& spec) { return spec.part == catalog::Part::engram; };
  expect_loaded(path("ck"), path("n"), options);
  options.direct = true;
  expect_loaded(path("ck"), path("n"), options);
}

TEST_F(Load, ServesTwoGroupsOfOneReplica) {
  on_first_rank([&] { convert::convert(kNano, path("n")); });
  const convert::SourceModel source(kNano);
  const ShardModel model = open_shards(*world_, path("n"));
  std::vector<catalog::RankPlace> places;
  const int tensor = std::max(1, world_->size() / 2);  // alone: one group of one
  for (int rank = 0; rank < world_->size(); ++rank) places.push_back({tensor, rank % tensor, world_->size(), rank});
  CheckingSink sink(source, places[static_cast<std::size_t>(world_->rank())]);
  load(*world_, model, places, sink);
  EXPECT_EQ(sink.ended(), source.table.size());
}

// The ranks of a job with two copies of the model: the second one's receive from the first one's.
struct TwoReplicas {
  explicit TwoReplicas(parallel::Collectives& world) {
    const int size = std::max(1, world.size() / 2);  // alone: one copy, which is its own peer
    number = world.rank() / size;
    replica = world.split(number, world.rank());
    peers = world.split(world.rank() % size, world.rank());
  }
  int number = 0;
  std::unique_ptr<parallel::Collectives> replica;
  std::unique_ptr<parallel::Collectives> peers;
};

TEST_F(Load, ReplicasReceiveWhatTheFirstOneReads) {
  const std::string config = test::nano_with_tables(30'000, 96);
  on_first_rank([&] {
    test::write_random_checkpoint(path("ck"), config, kNano);
    convert::convert(path("ck"), path("n"));
  });
  const TwoReplicas two(*world_);
  const LoadGroups groups{*world_, *two.replica, two.peers.get()};
  const convert::SourceModel source(path("ck"));
  const ShardModel model = open_shards(*world_, path("n"));
  const auto places = one_group_places(two.replica->size());
  LoadOptions options;
  for (const bool direct : {false, true}) {
    options.direct = direct;
    options.readers = direct ? 1 : 2;
    CheckingSink sink(source, places[static_cast<std::size_t>(two.replica->rank())]);
    const LoadReport report = load(groups, model, places, sink, options);
    EXPECT_EQ(sink.ended(), source.table.size());
    EXPECT_EQ(report.bytes_held, sink.bytes());
    if (two.number > 0) {
      EXPECT_EQ(report.bytes_read, 0U);
    }
    const LoadSummary summary = summarize(*world_, model, report, options, "here");
    if (!direct) {
      EXPECT_EQ(summary.bytes_read, summary.model_bytes);  // once, for both copies
    }
    if (world_->rank() == 0) {
      EXPECT_EQ(summary.slowest_host, "here");
    }
  }
  // What the first one cannot read stops the second as well.
  const io::ShardDataset& dataset = model.index.datasets[model.index.datasets.size() / 2];
  on_first_rank([&] {
    std::string bytes = test::slurp(path("n/" + dataset.file));
    bytes[dataset.offset] ^= 1;
    test::spit(path("n/" + dataset.file), bytes);
  });
  for (const bool direct : {false, true}) {
    options.direct = direct;
    IgnoringSink sink;
    expect_agreed(ExitCode::bad_input, {dataset.file, dataset.name, "damaged"},
                  [&] { load(groups, model, places, sink, options); });
  }
}

TEST_F(Load, MakesASyntheticModelInPlaceWithTheBitsOfItsShards) {
  convert::SourceModel made = convert::synthesize(kNano + "/config.json", {"", 9});
  on_first_rank([&] { convert::convert(made, path("s")); });
  expect_loaded(convert::synthesize(kNano + "/config.json", {"", 9}), open_shards(*world_, path("s")), {});
  const ShardModel in_place = open_synthetic(
      "config", std::move(made.index), std::make_shared<const catalog::SyntheticModel>(std::move(*made.synthetic)));
  LoadOptions options;
  options.read_ahead = 3;
  EXPECT_EQ(expect_loaded(convert::synthesize(kNano + "/config.json", {"", 9}), in_place, options), 0);
}

TEST_F(Load, FailsOnAllRanksWithTheReadersWords) {
  on_first_rank([&] { convert::convert(kNano, path("n")); });
  const ShardModel model = open_shards(*world_, path("n"));
  const auto places = one_group_places(world_->size());
  std::size_t victim = 0;
  while (model.index.datasets[victim].name != "layers.5.ffn.experts.w2.weight") ++victim;
  const io::ShardDataset& dataset = model.index.datasets[victim];
  on_first_rank([&] {
    std::string bytes = test::slurp(path("n/" + dataset.file));
    bytes[dataset.offset + dataset.bytes - 1] ^= 1;
    test::spit(path("n/" + dataset.file), bytes);
  });
  IgnoringSink sink;
  LoadOptions options;
  for (const int readers : {1, 2, 4}) {
    options.readers = readers;
    options.direct = false;
    expect_agreed(ExitCode::bad_input, {"layer_05.h5", dataset.name, "damaged"},
                  [&] { load(*world_, model, places, sink, options); });
    options.direct = true;
    expect_agreed(ExitCode::bad_input, {"layer_05.h5", dataset.name, "damaged"},
                  [&] { load(*world_, model, places, sink, options); });
  }
  on_first_rank([&] { fs::resize_file(path("n/layer_03.h5"), 1000); });
  expect_agreed(ExitCode::bad_input, {"layer_03.h5", "truncated"}, [&] { load(*world_, model, places, sink); });
  on_first_rank([&] { fs::remove(path("n/layer_01.h5")); });
  expect_agreed(ExitCode::bad_input, {"layer_01.h5", "No such file"}, [&] { load(*world_, model, places, sink); });
  on_first_rank([&] { fs::remove(path("n/index.h5")); });
  expect_agreed(ExitCode::bad_input, {"index.h5", "bathys convert"}, [&] { open_shards(*world_, path("n")); });
}

TEST_F(Load, RefusesPlacesThatCannotShareTheModel) {
  on_first_rank([&] { convert::convert(kNano, path("n")); });
  const ShardModel model = open_shards(*world_, path("n"));
  const std::vector<catalog::RankPlace> thirds(static_cast<std::size_t>(world_->size()),
                                               catalog::RankPlace::one_group(3, 0));
  IgnoringSink sink;
  expect_agreed(ExitCode::usage, {"3 tensor ranks"}, [&] { load(*world_, model, thirds, sink); });
}

// Fails on the last rank alone, in the middle of the model.
class FailingSink : public IgnoringSink {
 public:
  explicit FailingSink(bool fails) : fails_(fails) {}
  void begin(const catalog::DatasetSpec& dataset, const catalog::Slice& /*slice*/) override {
    if (fails_ && dataset.name == "layers.4.attn.wkv.weight") throw std::runtime_error("no room for the weights");
  }

 private:
  bool fails_;
};

TEST_F(Load, FailsOnAllRanksWhenOneSinkDoes) {
  on_first_rank([&] { convert::convert(kNano, path("n")); });
  const ShardModel model = open_shards(*world_, path("n"));
  FailingSink sink(world_->rank() == world_->size() - 1);
  LoadOptions options;
  for (const bool direct : {false, true}) {
    options.direct = direct;
    expect_agreed(ExitCode::internal, {"no room for the weights"},
                  [&] { load(*world_, model, one_group_places(world_->size()), sink, options); });
  }
}

}  // namespace
}  // namespace bathys::weights
