// SPDX-License-Identifier: Apache-2.0
// Converting, verifying and writing back by several ranks: the same bytes and the same words as by one.
#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "convert/export.hpp"
#include "convert/synth.hpp"
#include "convert/team.hpp"
#include "convert/verify.hpp"
#include "io/ranks_folder.hpp"
#include "io/shard_index.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"
#include "parallel/signals.hpp"

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <memory>
#include <numeric>

#include <gtest/gtest.h>

namespace bathys::convert {
namespace {

namespace fs = std::filesystem;
using test::kNano;
using test::slurp;
using test::spit;

class Ranks : public test::RanksFolder {
 protected:
  // The words with which every rank alike refuses, without the number of the rank that speaks.
  template <class Work>
  std::string refusal(ExitCode code, Work&& work) {
    std::string text = agreed_refusal(code, std::forward<Work>(work));
    if (text.starts_with("rank ")) text = text.substr(text.find(": ") + 2);
    return text;
  }
};

TEST_F(Ranks, WriteTheShardsThatOneWrites) {
  const ConvertReport report = convert(*world_, kNano, path("together"));
  EXPECT_EQ(report.bytes_written, 7'439'252U);
  EXPECT_EQ(report.files_kept, 0);
  on_first_rank([&] {
    convert(kNano, path("alone"));
    test::expect_same_folder(path("together"), path("alone"));
    for (const char* lost : {"index.h5", "layer_03.h5", "global.h5", "layer_05.h5"})
      fs::remove(path("together") + "/" + lost);
  });
  EXPECT_EQ(convert(*world_, kNano, path("together")).files_kept, report.files - 3);
  EXPECT_EQ(convert(*world_, kNano, path("together")).bytes_written, 0U);
  on_first_rank([&] { test::expect_same_folder(path("together"), path("alone")); });
  const VerifyReport verified = verify(*world_, path("together"));
  EXPECT_EQ(verified.bytes_read, verified.bytes);
}

TEST_F(Ranks, SayTheSameOfADamagedFolderAsOneRank) {
  on_first_rank([&] { convert(kNano, path("n")); });
  const io::ShardIndex index = io::read_shard_index(path("n"));
  const auto flip = [&](std::size_t dataset) {
    const io::ShardDataset& victim = index.datasets[dataset];
    std::string bytes = slurp(path("n/" + victim.file));
    bytes[victim.offset] ^= 1;
    spit(path("n/" + victim.file), bytes);
  };
  // Two faults: the first in the order of the table is reported, whichever rank meets it when.
  const std::size_t last = index.datasets.size() - 1;
  on_first_rank([&] { flip(last), flip(last / 3); });
  EXPECT_NE(refusal(ExitCode::bad_input, [&] { verify(*world_, path("n")); }).find(index.datasets[last / 3].name),
            std::string::npos);
  on_first_rank([&] { flip(last / 3); });
  const std::string words = refusal(ExitCode::bad_input, [&] { verify(*world_, path("n")); });
  EXPECT_NE(words.find(index.datasets[last].name + ": bytes 0 to"), std::string::npos) << words;
  const std::string alone = refusal(ExitCode::bad_input, [&] { verify(path("n")); });
  EXPECT_EQ(words, alone);
  // Structure, with and without reading payload.
  on_first_rank([&] { fs::resize_file(path("n/layer_06.h5"), 5000); });
  VerifyOptions structure;
  for (const bool checksums : {true, false}) {
    structure.checksums = checksums;
    EXPECT_NE(refusal(ExitCode::bad_input, [&] { verify(*world_, path("n"), structure); }).find("layer_06.h5"),
              std::string::npos);
  }
}

TEST_F(Ranks, StopTogetherAtAPayloadThatOneOfThemRefuses) {
  on_first_rank([&] {
    auto tensors = test::read_loose(kNano);
    test::find(tensors, "layers.4.ffn.experts.9.w2.scale").bytes[7] = '\xff';
    test::write_checkpoint(path("ck"), kNano, tensors);
  });
  const std::string words = refusal(ExitCode::bad_input, [&] { convert(*world_, path("ck"), path("out")); });
  EXPECT_NE(words.find("layers.4.ffn.experts.9.w2.scale has the NaN"), std::string::npos) << words;
  on_first_rank([&] {
    EXPECT_FALSE(fs::exists(path("out/index.h5")));
    for (const auto& entry : fs::directory_iterator(path("out")))
      EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
    spit(path("file"), "x");
  });
  EXPECT_NE(refusal(ExitCode::usage, [&] { convert(*world_, kNano, path("file")); }).find("file"), std::string::npos);
  EXPECT_NE(refusal(ExitCode::bad_input, [&] { convert(*world_, path("nowhere"), path("out")); }).find("nowhere"),
            std::string::npos);
}

TEST_F(Ranks, StopForASignalAndGoOn) {
  parallel::install_signal_handlers();
  if (world_->rank() == world_->size() - 1) std::raise(SIGUSR1);
  const std::string words = refusal(ExitCode::stopped, [&] { convert(*world_, kNano, path("out")); });
  parallel::clear_stop_request();
  EXPECT_NE(words.find("run the same command again"), std::string::npos) << words;
  on_first_rank([&] { EXPECT_FALSE(fs::exists(path("out/index.h5"))); });
  convert(*world_, kNano, path("out"));
  on_first_rank([&] {
    convert(kNano, path("alone"));
    test::expect_same_folder(path("out"), path("alone"));
  });
}

TEST_F(Ranks, WriteTheCheckpointBackByteForByte) {
  on_first_rank([&] { convert(kNano, path("n")); });
  const ReleaseReport report = export_checkpoint(*world_, path("n"), path("back"));
  EXPECT_EQ(report.bytes_written, 7'439'252U);
  on_first_rank([&] {
    const auto before = test::read_loose(kNano);
    const auto after = test::read_loose(path("back"));
    ASSERT_EQ(before.size(), after.size());
    for (std::size_t i = 0; i < before.size(); ++i) {
      EXPECT_EQ(before[i].name, after[i].name);
      EXPECT_EQ(before[i].dtype, after[i].dtype);
      EXPECT_EQ(before[i].shape, after[i].shape);
      EXPECT_TRUE(before[i].bytes == after[i].bytes) << before[i].name;
    }
    for (const char* text : {"config.json", "tokenizer.json", "tokenizer_config.json"})
      EXPECT_EQ(slurp(kNano + "/" + text), slurp(path("back/") + text));
    fs::remove(path("back/model-00003-of-00015.safetensors"));
  });
  const ReleaseReport again = export_checkpoint(*world_, path("n"), path("back"));
  EXPECT_EQ(again.files_kept, again.files - 1);
  // And forth again: another model by its headers, the same by its content.
  convert(*world_, path("back"), path("n2"));
  const io::ShardIndex first = io::read_shard_index(path("n"));
  const io::ShardIndex second = io::read_shard_index(path("n2"));
  EXPECT_NE(first.model_id, second.model_id);
  EXPECT_EQ(first.content_id(), second.content_id());
  // A damaged shard is no source.
  on_first_rank([&] {
    std::string bytes = slurp(path("n/layer_02.h5"));
    bytes[bytes.size() - 9] ^= 1;
    spit(path("n/layer_02.h5"), bytes);
  });
  EXPECT_NE(
      refusal(ExitCode::bad_input, [&] { export_checkpoint(*world_, path("n"), path("third")); }).find("layer_02.h5"),
      std::string::npos);
  on_first_rank([&] { EXPECT_FALSE(fs::exists(path("third/model.safetensors.index.json"))); });
  EXPECT_NE(refusal(ExitCode::usage, [&] { export_checkpoint(*world_, path("n2"), path("n")); }).find("empty folder"),
            std::string::npos);
}

TEST_F(Ranks, MakeTheSyntheticModelThatOneMakes) {
  const SourceModel model = synthesize(kNano + "/config.json", {"", 5});
  convert(*world_, model, path("shards"));
  write_checkpoint(*world_, model, path("checkpoint"));
  on_first_rank([&] {
    convert(model, path("alone"));
    test::expect_same_folder(path("shards"), path("alone"));
    write_checkpoint(model, path("checkpoint_alone"));
    test::expect_same_folder(path("checkpoint"), path("checkpoint_alone"));
  });
}

TEST(ShareOut, GivesEachItemToOneMemberAndNobodyMuchMoreThanOthers) {
  const std::vector<std::uint64_t> sizes = {100, 7, 7, 7, 7, 7, 7, 7, 7, 100, 3, 1, 0};
  for (const int members : {1, 2, 3, 4, 20}) {
    const std::vector<int> of = share_out(sizes, members);
    ASSERT_EQ(of.size(), sizes.size());
    std::vector<std::uint64_t> load(static_cast<std::size_t>(members), 0);
    for (std::size_t i = 0; i < of.size(); ++i) load.at(static_cast<std::size_t>(of[i])) += sizes[i];
    const std::uint64_t total = std::accumulate(sizes.begin(), sizes.end(), std::uint64_t{0});
    EXPECT_LE(*std::max_element(load.begin(), load.end()),
              std::max<std::uint64_t>(100, total / static_cast<std::uint64_t>(members) + 7));
  }
}

}  // namespace
}  // namespace bathys::convert
