// SPDX-License-Identifier: Apache-2.0
#include "convert/synth.hpp"

#include "config/model_config.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "convert/synthetic_tokenizer.hpp"
#include "convert/verify.hpp"
#include "io/temp_folder.hpp"
#include "tokenizer/token_map.hpp"
#include "tokenizer/tokenizer.hpp"

#include <filesystem>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::convert {
namespace {

using test::expect_error;
using test::kNano;
using test::TempFolder;

const std::string kModels = kNano + "/..";

config::ModelConfig read_config(const std::string& path) { return config::read_model_config(test::slurp(path), path); }

std::vector<std::byte> bytes_of(const SourceModel& model, std::size_t dataset) {
  const DatasetSource source(model, dataset);
  std::vector<std::byte> bytes(static_cast<std::size_t>(source.bytes()));
  source.read(0, bytes);
  return bytes;
}

TEST(Synth, ShardsAndCheckpointHoldTheSameModel) {
  const TempFolder folder;
  const SourceModel model = synthesize(kNano + "/config.json", {});
  convert(model, folder.path("shards"));
  const VerifyReport report = verify(folder.path("shards"));
  EXPECT_EQ(report.bytes_read, report.bytes);

  const ReleaseReport written = write_checkpoint(model, folder.path("checkpoint"));
  EXPECT_EQ(written.bytes_written, report.bytes);
  const SourceModel read(folder.path("checkpoint"));  // the tensors are exactly the config's
  ASSERT_EQ(read.table.size(), model.table.size());
  for (std::size_t i = 0; i < read.table.size(); ++i)
    ASSERT_EQ(bytes_of(read, i), bytes_of(model, i)) << read.table[i].name;
  EXPECT_EQ(read.index.compressed_token_map, model.index.compressed_token_map);
  convert(read, folder.path("converted"));  // which checks the scales of every linear layer
}

TEST(Synth, TheSameCommandGoesOnAndAnotherModelIsRefused) {
  const TempFolder folder;
  const SourceModel model = synthesize(kNano + "/config.json", {"", 3});
  const ReleaseReport first = write_checkpoint(model, folder.path("out"));
  const std::string lost = folder.path("out/model-00003-of-00015.safetensors");
  const std::string bytes = test::slurp(lost);
  std::filesystem::remove(lost);
  const ReleaseReport second = write_checkpoint(model, folder.path("out"));
  EXPECT_EQ(second.files, first.files);
  EXPECT_EQ(second.files_kept, first.files - 1);
  EXPECT_EQ(test::slurp(lost), bytes);

  expect_error(ExitCode::usage, {"another model", "synthetic.json"}, [&] {
    write_checkpoint(synthesize(kNano + "/config.json", {"", 4}), folder.path("out"));
  });
  convert(model, folder.path("shards"));
  EXPECT_EQ(convert(model, folder.path("shards")).bytes_written, 0U);
  expect_error(ExitCode::usage, {"another model"}, [&] {
    convert(synthesize(kNano + "/config.json", {"", 4}), folder.path("shards"));
  });
}

TEST(Synth, AFolderWithAnythingElseIsLeftAlone) {
  const TempFolder folder;
  test::spit(folder.path("config.json"), "precious");
  expect_error(ExitCode::usage, {"holds config.json", "empty folder"},
               [&] { write_checkpoint(synthesize(kNano + "/config.json", {}), folder.path()); });
  EXPECT_EQ(test::slurp(folder.path("config.json")), "precious");
}

TEST(Synth, ATokenizerThatIsGivenMustBelongToTheConfig) {
  const SourceModel model = synthesize(kNano + "/config.json", {kNano + "/tokenizer.json", 0});
  EXPECT_EQ(model.index.tokenizer_json, test::slurp(kNano + "/tokenizer.json"));
  expect_error(ExitCode::bad_input, {"1024", "16384"}, [] {
    synthesize(kModels + "/mid.json", {kNano + "/tokenizer.json", 0});
  });
}

TEST(SyntheticTokenizer, ItsTokensFallIntoTheClassesOfTheConfig) {
  for (const std::string file : {"/nano/config.json", "/mid.json"}) {  // the released one's: released_test.cpp
    const config::ModelConfig config = read_config(kModels + file);
    const auto tokenizer =
        tokenizer::Tokenizer::from_json(synthetic_tokenizer_json(config), "tokenizer.json", config.vocab_size);
    EXPECT_EQ(tokenizer::compressed_token_map(tokenizer).n_classes, config.engram_compressed_vocab_size) << file;
  }
}

TEST(SyntheticTokenizer, IdsAndTextsGoThereAndBack) {
  const config::ModelConfig config = read_config(kModels + "/mid.json");
  const auto tokenizer =
      tokenizer::Tokenizer::from_json(synthetic_tokenizer_json(config), "tokenizer.json", config.vocab_size);
  const std::string text = "In the beginning: 深い, naïve 😀\r\n";
  EXPECT_EQ(tokenizer.decode(tokenizer.encode(text)), text);
  std::vector<tokenizer::TokenId> ids(static_cast<std::size_t>(config.vocab_size - 259));
  std::iota(ids.begin(), ids.end(), 259);
  EXPECT_EQ(tokenizer.encode(tokenizer.decode(ids)), ids);
}

TEST(SyntheticTokenizer, AnImpossibleVocabularyIsRefused) {
  config::ModelConfig config = read_config(kNano + "/config.json");
  config.engram_compressed_vocab_size = config.vocab_size;
  expect_error(ExitCode::usage, {"engram_compressed_vocab_size is 1024", "give a tokenizer"},
               [&] { synthetic_tokenizer_json(config); });
  config.engram_compressed_vocab_size = 100;
  expect_error(ExitCode::usage, {"engram_compressed_vocab_size is 100"}, [&] { synthetic_tokenizer_json(config); });
  config.vocab_size = 256;
  expect_error(ExitCode::usage, {"vocab_size is 256"}, [&] { synthetic_tokenizer_json(config); });
}

}  // namespace
}  // namespace bathys::convert
