// SPDX-License-Identifier: Apache-2.0
#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "convert/scale_rules.hpp"
#include "convert/source_model.hpp"
#include "convert/verify.hpp"
#include "core/json.hpp"
#include "io/temp_folder.hpp"

#include <cstdlib>
#include <filesystem>
#include <map>

#include <gtest/gtest.h>

namespace bathys::convert {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::kNano;
using test::LooseTensor;
using test::slurp;
using test::spit;
using test::TempFolder;

TEST(CanonicalName, IsTheReleasesForEverySpellingTheOfficialConverterTakes) {
  EXPECT_EQ(canonical_tensor_name("layers.0.attn.wq_a.weight"), "layers.0.attn.wq_a.weight");
  EXPECT_EQ(canonical_tensor_name("model.layers.0.self_attn.wq_a.weight_scale_inv"), "layers.0.attn.wq_a.scale");
  EXPECT_EQ(canonical_tensor_name("model.layers.7.mlp.gate.e_score_correction_bias"), "layers.7.ffn.gate.bias");
  EXPECT_EQ(canonical_tensor_name("vision.blocks.3.mlp.w1.weight"), "vision.blocks.3.mlp.w1.weight");
  EXPECT_EQ(canonical_tensor_name("mtp.2.markov_head.embed.weight"), "mtp.2.markov_head.embed.weight");
  EXPECT_EQ(canonical_tensor_name("mtp.0.head.weight"), std::nullopt);
  EXPECT_EQ(canonical_tensor_name("model.mtp.1.embed.weight"), std::nullopt);
  EXPECT_EQ(canonical_tensor_name("model"), "model");
  EXPECT_EQ(canonical_tensor_name(""), "");
}

// Changes the nano model and expects that convert refuses it with these words and writes nothing.
class Refusal : public testing::Test {
 protected:
  template <class Change>
  void refused(std::initializer_list<std::string_view> words, Change&& change) {
    const TempFolder folder;
    auto tensors = nano_;
    change(tensors);
    test::write_checkpoint(folder.path("ck"), kNano, tensors);
    expect_error(ExitCode::bad_input, words, [&] { convert(folder.path("ck"), folder.path("out")); });
    EXPECT_FALSE(fs::exists(folder.path("out/index.h5")));
  }
  const std::vector<LooseTensor> nano_ = test::read_loose(kNano);
};

TEST_F(Refusal, NamesMissingAndUnknownTensors) {
  refused({"layers.3.attn.wkv.scale is missing", "F8_E8M0 [2, 4]"}, [](auto& tensors) {
    std::erase_if(tensors, [](const LooseTensor& t) { return t.name == "layers.3.attn.wkv.scale"; });
  });
  refused({"layers.0.ffn.experts.15.w2.weight is missing"}, [](auto& tensors) {
    std::erase_if(tensors, [](const LooseTensor& t) { return t.name == "layers.0.ffn.experts.15.w2.weight"; });
  });
  refused({"layers.0.ffn.experts.16.w1.weight is unknown"}, [](auto& tensors) {
    auto extra = test::find(tensors, "layers.0.ffn.experts.15.w1.weight");
    extra.name = "layers.0.ffn.experts.16.w1.weight";
    tensors.push_back(extra);
  });
  refused({"model.norm.weight", "norm.weight"}, [](auto& tensors) {
    auto twin = test::find(tensors, "norm.weight");
    twin.name = "model.norm.weight";
    tensors.push_back(twin);
  });
}

TEST_F(Refusal, NamesWrongShapesAndTypes) {
  refused({"layers.0.attn.wkv.weight is F8_E4M3 [128, 64]", "wants F8_E4M3 [64, 128]"}, [](auto& tensors) {
    test::find(tensors, "layers.0.attn.wkv.weight").shape = {128, 64};
  });
  // Scales of a 128x128 grid, scales as floats.
  refused({"layers.0.attn.wkv.scale is F8_E8M0 [1, 1]", "wants F8_E8M0 [2, 4]"}, [](auto& tensors) {
    auto& scale = test::find(tensors, "layers.0.attn.wkv.scale");
    scale.shape = {1, 1};
    scale.bytes.resize(1);
  });
  refused({"layers.0.attn.wkv.scale is F32 [2, 4]"}, [](auto& tensors) {
    auto& scale = test::find(tensors, "layers.0.attn.wkv.scale");
    scale.dtype = "F32";
    scale.bytes.resize(32);
  });
  // FP8 where FP4 belongs.
  refused({"layers.0.ffn.experts.3.w1.weight is F8_E4M3 [64, 128]", "wants I8 [64, 64]"}, [](auto& tensors) {
    auto& weight = test::find(tensors, "layers.0.ffn.experts.3.w1.weight");
    weight.dtype = "F8_E4M3";
    weight.shape = {64, 128};
    weight.bytes.resize(64 * 128);
  });
  refused({"norm.weight is F4 [64]", "wants BF16 [128]"}, [](auto& tensors) {
    auto& norm = test::find(tensors, "norm.weight");
    norm.dtype = "F4";
    norm.shape = {64};
  });
}

TEST_F(Refusal, NamesScalesThatAreNoNumbers) {
  refused({"layers.2.attn.wq_b.scale", "NaN", "[1, 0]"}, [](auto& tensors) {
    auto& scale = test::find(tensors, "layers.2.attn.wq_b.scale");
    scale.bytes[static_cast<std::size_t>(scale.shape[1])] = '\xff';
  });
  refused({"layers.1.engram.embed.scale", "NaN", "[77, 0]"},
          [](auto& tensors) { test::find(tensors, "layers.1.engram.embed.scale").bytes[77] = '\xff'; });
  refused({"layers.4.ffn.experts.9.w2.scale", "NaN", "[3, 1]"},
          [](auto& tensors) { test::find(tensors, "layers.4.ffn.experts.9.w2.scale").bytes[7] = '\xff'; });
}

TEST_F(Refusal, NamesScalesWhoseProductsLeaveTheNormalRange) {
  for (const int code : {0, kMinScaleCode - 1, kMaxScaleCode + 1, 254}) {
    refused({"layers.0.attn.wo_b.scale", "layers.0.attn.wo_b.weight has nonzero weights", "2^-104", "2^7"},
            [&](auto& tensors) { test::find(tensors, "layers.0.attn.wo_b.scale").bytes[5] = static_cast<char>(code); });
  }
  refused({"layers.0.ffn.experts.2.w1.scale", "[0, 2]"},
          [](auto& tensors) { test::find(tensors, "layers.0.ffn.experts.2.w1.scale").bytes[2] = 1; });
}

TEST_F(Refusal, AllowsAnyScaleWhereAllWeightsAreZeroAndTheLimitsThemselves) {
  const TempFolder folder;
  auto tensors = nano_;
  auto& scale = test::find(tensors, "layers.0.attn.wkv.scale");
  auto& weight = test::find(tensors, "layers.0.attn.wkv.weight");
  scale.bytes[1] = 0;  // block [0, 1]: rows 0..31, columns 32..63, of zeros of either sign
  for (std::size_t row = 0; row < 32; ++row) {
    for (std::size_t column = 32; column < 64; ++column)
      weight.bytes[row * 128 + column] = column % 2 == 0 ? '\0' : '\x80';
  }
  scale.bytes[0] = static_cast<char>(kMinScaleCode);
  scale.bytes[2] = static_cast<char>(kMaxScaleCode);
  auto& expert_scale = test::find(tensors, "layers.0.ffn.experts.0.w1.scale");
  auto& expert = test::find(tensors, "layers.0.ffn.experts.0.w1.weight");
  expert_scale.bytes[1] = '\xf0';  // row 0, columns 32..63: bytes 16..31
  for (std::size_t byte = 16; byte < 32; ++byte) expert.bytes[byte] = byte % 2 == 0 ? '\x08' : '\x80';
  // A gathered table is no linear layer: its scales are free.
  test::find(tensors, "layers.1.engram.embed.scale").bytes[0] = 1;
  test::write_checkpoint(folder.path("ck"), kNano, tensors);
  convert(folder.path("ck"), folder.path("out"));
  verify(folder.path("out"));
}

TEST_F(Refusal, NamesATokenizerThatIsNotTheConfigs) {
  const TempFolder folder;
  fs::create_directory(folder.path("ck"));
  fs::copy(kNano, folder.path("ck"));
  Json config = parse_json(slurp(kNano + "/config.json"), "config.json", ExitCode::internal);
  config["text_config"]["engram_compressed_vocab_size"] = 866;
  spit(folder.path("ck/config.json"), config.dump());
  expect_error(ExitCode::bad_input, {"tokenizer.json", "867 classes", "866"},
               [&] { convert(folder.path("ck"), folder.path("out")); });
  fs::remove(folder.path("ck/tokenizer.json"));
  expect_error(ExitCode::bad_input, {"tokenizer.json"}, [&] { convert(folder.path("ck"), folder.path("out")); });
  fs::remove(folder.path("ck/config.json"));
  expect_error(ExitCode::bad_input, {"config.json"}, [&] { convert(folder.path("ck"), folder.path("out")); });
  expect_error(ExitCode::bad_input, {"nowhere"}, [&] { convert(folder.path("nowhere"), folder.path("out")); });
  EXPECT_FALSE(fs::exists(folder.path("out")));
}

// The variants of the nano checkpoint that tests/cases/gen.py writes: names say what is wanted.
TEST(OddCheckpoints, AreRefusedOrConvertToTheSameModel) {
  const TempFolder folder;
  const std::string command = fmt::format("python3 {0}/cases/gen.py checkpoints {1} {2} > /dev/null", BATHYS_TEST_DATA,
                                          kNano, folder.path("ck"));
  ASSERT_EQ(std::system(command.c_str()), 0) << command;
  convert(kNano, folder.path("plain"));
  const std::map<std::string, std::vector<std::string_view>> wanted = {
      {"c01_lfs_pointer", {"model-00002-of-00003.safetensors", "Git LFS pointer"}},
      {"c01_html", {"model-00002-of-00003.safetensors", "HTML"}},
      {"c01_empty_file", {"model-00002-of-00003.safetensors", "empty"}},
      {"c01_seven_bytes", {"model-00002-of-00003.safetensors", "7 bytes"}},
      {"c01_zeros", {"model-00002-of-00003.safetensors", "zeros"}},
      {"c01_tokenizer_lfs", {"tokenizer.json", "Git LFS pointer"}},
      {"c04_path_up", {"index.json", "../outside.safetensors"}},
      {"c04_path_absolute", {"index.json", "/outside.safetensors"}},
      {"c04_path_sub", {"index.json", "sub/../../outside.safetensors"}},
      {"c04_path_nul", {"index.json", "plain name"}},
      {"c04_path_number", {"index.json", "3"}},
      {"c04_tensor_elsewhere", {"layers.0.attn.attn_sink", "model-00002-of-00003.safetensors"}},
  };
  int found = 0;
  for (const auto& entry : fs::directory_iterator(folder.path("ck"))) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with("c")) continue;
    SCOPED_TRACE(name);
    ++found;
    const std::string out = folder.path("o_" + name);
    if (const auto refusal = wanted.find(name); refusal != wanted.end()) {
      try {
        convert(entry.path().string(), out);
        ADD_FAILURE() << "not refused";
      } catch (const Error& error) {
        EXPECT_EQ(static_cast<int>(error.code()), 66);
        for (const auto word : refusal->second)
          EXPECT_NE(std::string_view(error.what()).find(word), std::string_view::npos) << error.what();
      }
      EXPECT_FALSE(fs::exists(out + "/index.h5"));
      continue;
    }
    ASSERT_TRUE(name.find("_ok_") != std::string::npos || name.find("_stray_") != std::string::npos);
    convert(entry.path().string(), out);
    if (name.starts_with("c33")) {  // other small files, so another identity; the payload is compared
      VerifyOptions against;
      against.checkpoint = entry.path().string();
      verify(out, against);
      continue;
    }
    for (const auto& file : fs::directory_iterator(folder.path("plain"))) {
      if (file.path().filename() == "convert.state") continue;  // size and time of the checkpoint's files
      EXPECT_TRUE(slurp(file.path().string()) == slurp(out + "/" + file.path().filename().string())) << file.path();
    }
  }
  EXPECT_GE(found, 22);
}

}  // namespace
}  // namespace bathys::convert
