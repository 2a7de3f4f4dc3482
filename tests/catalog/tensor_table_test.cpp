// SPDX-License-Identifier: Apache-2.0
#include "catalog/tensor_table.hpp"

#include "config/model_files.hpp"
#include "core/json.hpp"

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::catalog {
namespace {

using config::ModelConfig;
using test::config_of;
using ::testing::ElementsAre;

using Entry = std::pair<std::string, std::vector<std::int64_t>>;  // dtype, shape

// All tensors of a checkpoint folder, from the headers of its safetensors files.
std::map<std::string, Entry> stored_tensors(const std::string& folder) {
  std::map<std::string, Entry> tensors;
  for (const auto& file : std::filesystem::directory_iterator(test::source_path(folder))) {
    if (file.path().extension() != ".safetensors") continue;
    const std::string bytes = test::read_text(file.path().string());
    std::uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    const Json header = parse_json(std::string_view(bytes).substr(8, header_bytes), "header", ExitCode::bad_input);
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;
      tensors[name] = {entry["dtype"].get<std::string>(), entry["shape"].get<std::vector<std::int64_t>>()};
    }
  }
  return tensors;
}

std::map<std::string, Entry> derived_tensors(const ModelConfig& config) {
  std::map<std::string, Entry> tensors;
  for (const TensorSpec& spec : tensor_table(config)) {
    EXPECT_TRUE(tensors.emplace(spec.name, Entry{safetensors_dtype(spec.dtype), spec.shape}).second) << spec.name;
  }
  return tensors;
}

std::map<std::string, TensorSpec> by_name(const ModelConfig& config) {
  std::map<std::string, TensorSpec> tensors;
  for (TensorSpec& spec : tensor_table(config)) tensors.emplace(spec.name, spec);
  return tensors;
}

class StoredCheckpoint : public ::testing::TestWithParam<const char*> {};

TEST_P(StoredCheckpoint, HasExactlyTheTensorsOfTheTable) {
  const std::string folder = GetParam();
  const auto derived = derived_tensors(config_of(folder + "/config.json"));
  const auto stored = stored_tensors(folder);
  for (const auto& [name, entry] : stored) {
    const auto found = derived.find(name);
    ASSERT_NE(found, derived.end()) << name << " is not in the table";
    EXPECT_EQ(found->second, entry) << name;
  }
  for (const auto& [name, entry] : derived) EXPECT_TRUE(stored.contains(name)) << name << " is not in the checkpoint";
  EXPECT_GT(stored.size(), 200u);
}

INSTANTIATE_TEST_SUITE_P(Models, StoredCheckpoint,
                         ::testing::Values("tests/golden/base/model", "tests/golden/plain/model",
                                           "tests/golden/vision/model", "inputs/models/nano"));

TEST(TensorTable, TheReleaseHasItsTensorsAndBytes) {
  const auto table = tensor_table(test::released_config());
  EXPECT_EQ(table.size(), 96085u);
  std::int64_t bytes = 0;
  int scales = 0, fp4 = 0, fp8 = 0, tables = 0, draft = 0, draft_scales = 0, vision = 0;
  std::int64_t vision_bytes = 0;
  std::map<Dtype, std::int64_t> by_dtype;
  for (const TensorSpec& spec : table) {
    bytes += spec.bytes();
    by_dtype[spec.dtype] += spec.bytes();
    const bool is_scale = spec.name.ends_with(".scale");
    scales += is_scale;
    fp4 += spec.dtype == Dtype::i8;
    tables += spec.dtype == Dtype::f8_e4m3 && spec.rule == ShardRule::table_rows;
    fp8 += spec.dtype == Dtype::f8_e4m3 && spec.rule != ShardRule::table_rows;
    draft += spec.name.starts_with("mtp.");
    draft_scales += spec.name.starts_with("mtp.") && is_scale;
    if (spec.part == Part::vision) {
      ++vision;
      vision_bytes += spec.bytes();
      EXPECT_EQ(spec.dtype, Dtype::bf16) << spec.name;
    }
  }
  EXPECT_EQ(bytes, 510286023000);
  EXPECT_EQ(by_dtype[Dtype::i8], 278585671680);
  EXPECT_EQ(by_dtype[Dtype::f8_e4m3], 204015223296);
  EXPECT_EQ(by_dtype[Dtype::f8_e8m0], 23563015184);
  EXPECT_EQ(by_dtype[Dtype::bf16], 3952883712);
  EXPECT_EQ(by_dtype[Dtype::f32], 169229128);
  EXPECT_EQ(scales, 47589);
  EXPECT_EQ(fp4, 47232);
  EXPECT_EQ(fp8, 355);
  EXPECT_EQ(tables, 2);
  EXPECT_EQ(draft, 2401);
  EXPECT_EQ(draft_scales, 1177);
  EXPECT_EQ(vision, 266);
  EXPECT_EQ(vision_bytes, 970536960);
}

TEST(TensorTable, TheReleaseHasItsFiles) {
  const ModelConfig config = test::released_config();
  ASSERT_EQ(released_file_count(config), 48);
  std::vector<std::pair<int, std::int64_t>> files(48);
  int last_file = 0;
  for (const TensorSpec& spec : tensor_table(config)) {
    auto& [count, bytes] = files[static_cast<std::size_t>(spec.file)];
    ++count;
    bytes += spec.bytes();
    EXPECT_GE(spec.file, last_file);  // file by file
    last_file = spec.file;
  }
  using File = std::pair<int, std::int64_t>;
  const auto file = [&](int number) { return files[static_cast<std::size_t>(number - 1)]; };
  EXPECT_EQ(file(1), File(263, 970506240));
  EXPECT_EQ(file(2), File(4, 1323857920));
  const std::set<int> both = {2, 8, 14}, index_only = {24, 28, 32, 36};
  for (int layer = 0; layer < 40; ++layer) {
    File expected(2334, 7389500888);
    if (both.contains(layer)) expected = {2342, 7405694680};
    if (layer == 20) expected = {2341, 7400451800};
    if (index_only.contains(layer)) expected = {2337, 7395076568};
    EXPECT_EQ(file(3 + layer), expected) << "layer " << layer;
  }
  EXPECT_EQ(file(43), File(2, 1323837440));
  EXPECT_EQ(file(44), File(801, 2652643800));
  EXPECT_EQ(file(45), File(798, 2573913560));
  EXPECT_EQ(file(46), File(802, 2706317272));
  EXPECT_EQ(file(47), File(6, 101535150272));
  EXPECT_EQ(file(48), File(6, 101537925968));
  EXPECT_EQ(released_file_name(2, 48), "model-00003-of-00048.safetensors");
}

TEST(TensorTable, OneExpertAndALayerWithoutExpertsHaveTheirKnownSizes) {
  std::int64_t expert = 0, rest = 0;
  for (const TensorSpec& spec : tensor_table(test::released_config())) {
    if (spec.layer != 0) continue;
    if (spec.expert == 5) expert += spec.bytes();
    if (spec.expert < 0) rest += spec.bytes();
  }
  EXPECT_EQ(expert, 18800640);
  EXPECT_EQ(rest, 170055128);
}

TEST(TensorTable, ShapesOfTheReleaseAreThoseOfItsFiles) {
  const auto table = by_name(test::released_config());
  const auto expect = [&](const std::string& name, const std::string& dtype, std::vector<std::int64_t> shape) {
    ASSERT_TRUE(table.contains(name)) << name;
    EXPECT_EQ(safetensors_dtype(table.at(name).dtype), dtype) << name;
    EXPECT_EQ(table.at(name).shape, shape) << name;
  };
  expect("layers.0.attn.wq_b.weight", "F8_E4M3", {32768, 1280});
  expect("layers.0.attn.wq_b.scale", "F8_E8M0", {1024, 40});
  expect("layers.0.attn.wo_a.weight", "F8_E4M3", {8192, 4096});
  expect("layers.0.attn.wo_b.scale", "F8_E8M0", {160, 256});
  expect("layers.39.ffn.experts.383.w2.weight", "I8", {5120, 1152});
  expect("layers.39.ffn.experts.383.w2.scale", "F8_E8M0", {5120, 72});
  expect("layers.7.hc_ffn_fn", "F32", {24, 20480});
  expect("layers.7.ffn.gate.bias_vl", "F32", {384});
  expect("layers.14.engram.embed.weight", "F8_E4M3", {384016682, 256});
  expect("layers.14.engram.embed.scale", "F8_E8M0", {384016682, 8});
  expect("layers.1.engram.wkv.weight", "F8_E4M3", {25600, 6144});
  expect("layers.2.attn.indexer.wq_b.weight", "F8_E4M3", {4096, 1280});
  expect("layers.8.attn.compressor.wgate.weight", "BF16", {512, 5120});
  expect("mtp.0.main_proj.weight", "F8_E4M3", {5120, 15360});
  expect("mtp.2.confidence_head.proj.weight", "BF16", {1, 5376});
  expect("vision.patch_embed.proj.weight", "BF16", {1024, 588});
  expect("vision.blocks.31.mlp.w1.weight", "BF16", {5632, 1024});
  expect("aligner.w1.weight", "BF16", {5120, 9216});
  expect("image_newline", "BF16", {5120});
  EXPECT_FALSE(table.contains("layers.20.attn.compressor.wgate.weight"));
  EXPECT_FALSE(table.contains("layers.24.attn.compressor.wkv.weight"));
  EXPECT_FALSE(table.contains("mtp.1.main_proj.weight"));
  EXPECT_FALSE(table.contains("mtp.0.norm.weight"));
}

TEST(TensorTable, AWeightNamesItsScaleAndFollowsItDirectly) {
  const auto table = tensor_table(test::released_config());
  for (std::size_t i = 0; i < table.size(); ++i) {
    const TensorSpec& spec = table[i];
    const bool quantized = spec.dtype == Dtype::i8 || spec.dtype == Dtype::f8_e4m3;
    EXPECT_EQ(quantized, !spec.scale.empty()) << spec.name;
    if (!quantized) {
      EXPECT_THAT(spec.block, ElementsAre(0, 0)) << spec.name;
      continue;
    }
    const TensorSpec& scale = table[i - 1];
    ASSERT_EQ(scale.name, spec.scale);
    EXPECT_EQ(scale.file, spec.file);
    EXPECT_EQ(std::tuple(scale.rule, scale.units, scale.expert, scale.layer),
              std::tuple(spec.rule, spec.units, spec.expert, spec.layer));
    const auto logical = spec.logical_shape();
    EXPECT_EQ(scale.shape[0], logical[0] / spec.block[0]) << spec.name;
    EXPECT_EQ(scale.shape[1], logical[1] / spec.block[1]) << spec.name;
  }
}

TEST(TensorTable, ABf16ModelWithFp4ExpertsHasScalesForTheExpertsOnly) {
  ModelConfig config = config_of("tests/golden/base/model/config.json");
  config.fp8 = false;
  config::validate(config, "c");
  const auto table = by_name(config);
  EXPECT_EQ(table.at("layers.3.attn.wq_a.weight").dtype, Dtype::bf16);
  EXPECT_FALSE(table.contains("layers.3.attn.wq_a.scale"));
  EXPECT_EQ(table.at("layers.3.ffn.shared_experts.w1.weight").dtype, Dtype::bf16);
  EXPECT_EQ(table.at("layers.3.ffn.experts.2.w1.weight").dtype, Dtype::i8);
  EXPECT_EQ(table.at("layers.3.ffn.experts.2.w1.weight").logical_shape(), (std::vector<std::int64_t>{64, 128}));
  EXPECT_TRUE(table.contains("layers.3.ffn.experts.2.w1.scale"));
  EXPECT_EQ(table.at("layers.1.engram.embed.weight").dtype, Dtype::f8_e4m3);
}

TEST(TensorTable, ExpertsThatAreNotFp4FollowTheModelsDtype) {
  ModelConfig config = config_of("tests/golden/base/model/config.json");
  config.expert_fp4 = false;
  const auto table = by_name(config);
  const TensorSpec& weight = table.at("layers.3.ffn.experts.2.w1.weight");
  EXPECT_EQ(weight.dtype, Dtype::f8_e4m3);
  EXPECT_EQ(weight.shape, (std::vector<std::int64_t>{64, 128}));
  EXPECT_EQ(table.at(weight.scale).shape, (std::vector<std::int64_t>{2, 4}));
  EXPECT_EQ(weight.rule, ShardRule::experts);
}

TEST(TensorTable, ShardRulesFollowHeadsGroupsVocabularyAndExperts) {
  const auto table = by_name(test::released_config());
  const auto cut = [&](const std::string& name) {
    const TensorSpec& spec = table.at(name);
    return std::tuple(spec.rule, spec.units, spec.equal_shares);
  };
  EXPECT_EQ(cut("embed.weight"), std::tuple(ShardRule::rows, 129280, false));
  EXPECT_EQ(cut("head.weight"), std::tuple(ShardRule::rows, 129280, false));
  EXPECT_EQ(cut("layers.3.attn.wq_b.weight"), std::tuple(ShardRule::rows, 64, true));
  EXPECT_EQ(cut("layers.3.attn.attn_sink"), std::tuple(ShardRule::rows, 64, true));
  EXPECT_EQ(cut("layers.3.attn.wo_a.scale"), std::tuple(ShardRule::rows, 8, true));
  EXPECT_EQ(cut("layers.3.attn.wo_b.weight"), std::tuple(ShardRule::columns, 8, true));
  EXPECT_EQ(cut("layers.3.ffn.experts.7.w1.weight"), std::tuple(ShardRule::experts, 384, false));
  EXPECT_EQ(cut("mtp.1.ffn.experts.7.w1.weight"), std::tuple(ShardRule::experts, 128, false));
  EXPECT_EQ(cut("layers.1.engram.embed.scale"), std::tuple(ShardRule::table_rows, 384006168, false));
  for (const char* name :
       {"norm.weight", "layers.3.attn.wq_a.weight", "layers.3.attn.wkv.weight", "layers.3.ffn.gate.weight",
        "layers.3.ffn.shared_experts.w1.weight", "layers.2.attn.indexer.wq_b.weight",
        "layers.2.attn.indexer.weights_proj.weight", "layers.2.attn.compressor.wkv.weight", "layers.3.hc_attn_fn",
        "layers.1.engram.wkv.weight", "mtp.0.main_proj.weight", "aligner.w1.weight"}) {
    EXPECT_EQ(table.at(name).rule, ShardRule::replicated) << name;
  }
}

TEST(TensorTable, DtypeNamesAreThoseOfSafetensors) {
  for (const auto dtype : {Dtype::i8, Dtype::f8_e4m3, Dtype::f8_e8m0, Dtype::bf16, Dtype::f32}) {
    EXPECT_EQ(dtype_from_safetensors(safetensors_dtype(dtype)), dtype);
  }
  EXPECT_EQ(dtype_from_safetensors("F16"), std::nullopt);
  EXPECT_EQ(dtype_from_safetensors(""), std::nullopt);
}

}  // namespace
}  // namespace bathys::catalog
