// SPDX-License-Identifier: Apache-2.0
#include "config/model_config.hpp"

#include "config/model_files.hpp"
#include "core/error.hpp"
#include "core/json.hpp"

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::config {
namespace {

using test::config_of;
using test::read_text;
using test::source_path;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

// The message with which reading fails; fails the test where it does not.
std::string refusal(const std::string& json, ExitCode code = ExitCode::usage) {
  try {
    (void)read_model_config(json, "c.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), code);
    return error.what();
  }
  ADD_FAILURE() << "accepted: " << json;
  return "";
}

Json json_file(const std::string& path) { return parse_json(read_text(source_path(path)), path, ExitCode::usage); }
std::string changed(const std::string& path, const std::function<void(Json&)>& change) {
  Json json = json_file(path);
  change(json);
  return json.dump();
}
std::string changed_hf(const std::function<void(Json&)>& change) {
  return changed("tests/golden/vision/model/config.json", change);
}
std::string changed_inference(const std::function<void(Json&)>& change) {
  return changed("tests/golden/base/inference_config.json", change);
}

TEST(ModelConfig, BothFormsOfAGoldenModelAreOneConfig) {
  for (const std::string model : {"base", "plain", "vision"}) {
    ModelConfig hf = config_of("tests/golden/" + model + "/model/config.json");
    const ModelConfig inference = config_of("tests/golden/" + model + "/inference_config.json");
    EXPECT_EQ(hf.max_position_embeddings, 65536) << model;
    EXPECT_EQ(inference.max_position_embeddings, 4096) << model;
    hf.max_position_embeddings = inference.max_position_embeddings;
    EXPECT_EQ(to_inference_json(hf), to_inference_json(inference)) << model;
    EXPECT_EQ(hf, inference) << model;
  }
}

TEST(ModelConfig, BothFormsOfTheNanoModelAreOneConfig) {
  ModelConfig hf = config_of("inputs/models/nano/config.json");
  const ModelConfig inference = config_of("inputs/models/nano/inference_config.json");
  hf.max_position_embeddings = inference.max_position_embeddings;
  EXPECT_EQ(hf, inference);
}

TEST(ModelConfig, BothFormsOfTheReleaseAreOneConfig) {
  EXPECT_EQ(config_of("tests/config/released_hf.json"), test::released_config());
}

TEST(ModelConfig, ReadsTheValuesOfTheRelease) {
  const ModelConfig c = config_of("tests/config/released_hf.json");
  EXPECT_TRUE(c.fp8);
  EXPECT_TRUE(c.expert_fp4);
  EXPECT_EQ(c.vocab_size, 129280);
  EXPECT_EQ(c.dim, 5120);
  EXPECT_EQ(c.moe_inter_dim, 2304);
  EXPECT_EQ(c.n_layers, 40);
  EXPECT_EQ(c.rope_head_dim, 64);
  EXPECT_EQ(c.norm_eps, 1e-20);
  EXPECT_EQ(c.route_scale, 1.5);
  EXPECT_EQ(c.score_func, ScoreFunction::sqrtsoftplus);
  EXPECT_EQ(c.n_activated_experts, 6);
  EXPECT_EQ(c.window_size, 128);
  EXPECT_EQ(c.original_seq_len, 65536);
  EXPECT_EQ(c.rope_factor, 16);
  EXPECT_EQ(c.compress_rope_theta, 160000);
  EXPECT_THAT(c.engram_num_embeddings, ElementsAre(384006168, 384016682));
  EXPECT_EQ(c.engram_pad_id, 2);
  EXPECT_EQ(c.dspark_n_activated_experts, 3);
  EXPECT_EQ(c.vision_inter_dim, 2816);
  EXPECT_EQ(c.vision_min_pixels, 295936);
  EXPECT_FALSE(c.vision_max_wh_ratio.has_value());
  EXPECT_EQ(c.image_token_id, 129264);
  EXPECT_EQ(c.max_position_embeddings, 1048576);
}

TEST(ModelConfig, TheRecordOfAConfigReadsBackEqual) {
  for (const std::string path :
       {"tests/golden/base/model/config.json", "tests/golden/plain/model/config.json",
        "tests/golden/vision/model/config.json", "inputs/models/nano/config.json", "tests/config/released_hf.json"}) {
    const ModelConfig config = config_of(path);
    const std::string record = to_inference_json(config);
    EXPECT_EQ(read_model_config(record, "record"), config) << path;
    EXPECT_EQ(to_inference_json(read_model_config(record, "record")), record) << path;
  }
  ModelConfig capped = config_of("tests/golden/vision/model/config.json");
  capped.vision_max_wh_ratio = 2.5;
  capped.norm_topk_prob = false;
  capped.bos_token_id = 7;
  EXPECT_EQ(read_model_config(to_inference_json(capped), "record"), capped);
}

TEST(ModelConfig, MissingKeysOfTheInferenceFormHaveTheReferencesDefaults) {
  ModelConfig expected;
  expected.n_mtp_layers = 0;
  expected.compress_ratios = {0, 2, 2, 1, 1};
  // A feature that is off has its default values, so nothing else differs from the defaults.
  EXPECT_EQ(read_model_config(R"({"n_mtp_layers": 0, "compress_ratios": [0, 2, 2, 1, 1]})", "c.json"), expected);
  EXPECT_EQ(expected.dim, 1024);
  EXPECT_EQ(expected.compress_rope_theta, 40000.0);
  EXPECT_EQ(expected.rope_factor, 40);
}

TEST(ModelConfig, RunTimeLimitsOfTheReferenceAreIgnored) {
  const auto limits = [](Json& json) {
    json["max_batch_size"] = 4;
    json["max_seq_len"] = 4096;
    json["temperature"] = 0.6;
  };
  EXPECT_EQ(read_model_config(changed_inference(limits), "c"), config_of("tests/golden/base/inference_config.json"));
}

TEST(ModelConfig, AFloatKeyTakesAnIntegerButNotTheOtherWayRound) {
  EXPECT_EQ(read_model_config(changed_inference([](Json& j) { j["swiglu_limit"] = 7; }), "c").swiglu_limit, 7.0);
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["dim"] = 128.0; })),
              HasSubstr("c.json: dim is 128.0, expected an integer"));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["compress_ratios"][3] = 2.0; })),
              HasSubstr("c.json: compress_ratios is"));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["dim"] = std::int64_t{1} << 31; })),
              HasSubstr("c.json: dim is 2147483648, expected"));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["dim"] = nullptr; })),
              HasSubstr("dim is null, expected an integer"));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["norm_topk_prob"] = 1; })),
              HasSubstr("expected true or false"));
}

TEST(ModelConfig, UnknownKeysAreRefusedWithTheirPathAndTheNearestName) {
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["window_sise"] = 16; })),
              AllOf(HasSubstr("c.json: window_sise is unknown"), HasSubstr("window_size")));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["text_config"]["hiden_size"] = 1; })),
              AllOf(HasSubstr("c.json: text_config.hiden_size is unknown"), HasSubstr("hidden_size")));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["text_config"]["rope_scaling"]["mscale"] = 1; })),
              HasSubstr("c.json: text_config.rope_scaling.mscale is unknown"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["vision_config"]["depth"] = 1; })),
              HasSubstr("c.json: vision_config.depth is unknown"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["quantization_config"]["fmt"] = "e4m3"; })),
              HasSubstr("c.json: quantization_config.fmt is unknown"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["dim"] = 128; })), HasSubstr("c.json: dim is unknown"));
}

TEST(ModelConfig, KeysThatTheHuggingFaceFormMustHaveAreNamedWhenMissing) {
  const std::set<std::string> optional = {"model_type",     "num_key_value_heads", "hidden_act",
                                          "attention_bias", "attention_dropout",   "initializer_range",
                                          "use_cache",      "tie_word_embeddings", "topk_method"};
  const Json released = json_file("tests/config/released_hf.json");
  int n_required = 0;
  for (const auto& [key, value] : released["text_config"].items()) {
    Json json = released;
    json["text_config"].erase(key);
    if (optional.contains(key)) {
      EXPECT_NO_THROW((void)read_model_config(json.dump(), "c.json")) << key;
      continue;
    }
    EXPECT_THAT(refusal(json.dump()), HasSubstr("c.json: text_config." + key + " is missing"));
    ++n_required;
  }
  EXPECT_EQ(n_required, 50);
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j.erase("image_token_id"); })), HasSubstr("image_token_id is missing"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j.erase("model_type"); })), HasSubstr("model_type is missing"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["vision_config"].erase("patch_size"); })),
              HasSubstr("vision_config.patch_size is missing"));
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["quantization_config"].erase("expert_dtype"); })),
              HasSubstr("quantization_config.expert_dtype is missing"));
}

TEST(ModelConfig, KeysWithOneMeaningAreChecked) {
  const auto refuses = [](const std::string& section, const std::string& key, const Json& value) {
    EXPECT_THAT(refusal(changed_hf([&](Json& j) { (section.empty() ? j : j[section])[key] = value; })),
                HasSubstr(key + " is "))
        << value;
  };
  refuses("", "architectures", {"DeepseekV4ForCausalLM"});
  refuses("", "model_type", "deepseek_v4");
  refuses("", "dtype", "float16");
  refuses("text_config", "model_type", "deepseek_v4_text");
  refuses("text_config", "hidden_act", "gelu");
  refuses("text_config", "attention_bias", true);
  refuses("text_config", "tie_word_embeddings", true);
  refuses("text_config", "num_key_value_heads", 8);
  refuses("text_config", "topk_method", "greedy");
  refuses("text_config", "scoring_func", "tanh");
  refuses("vision_config", "model_type", "clip");
  refuses("quantization_config", "quant_method", "awq");
  refuses("quantization_config", "weight_block_size", {128, 128});
  refuses("quantization_config", "scale_fmt", "float");
  refuses("quantization_config", "activation_scheme", "static");
  refuses("quantization_config", "expert_dtype", "fp8");
  EXPECT_THAT(refusal(changed_hf([](Json& j) { j["text_config"]["rope_scaling"]["rope_type"] = "linear"; })),
              HasSubstr("rope_type is \"linear\", expected \"yarn\""));
}

TEST(ModelConfig, FormatsFollowTheQuantizationConfig) {
  const auto formats = [](const std::function<void(Json&)>& change) {
    const ModelConfig c = read_model_config(changed_hf(change), "c.json");
    return std::pair(c.fp8, c.expert_fp4);
  };
  EXPECT_EQ(formats([](Json&) {}), std::pair(true, true));
  EXPECT_EQ(formats([](Json& j) { j.erase("quantization_config"); }), std::pair(false, false));
  EXPECT_EQ(formats([](Json& j) { j["quantization_config"]["quant_method"] = nullptr; }), std::pair(false, true));
  EXPECT_EQ(formats([](Json& j) { j["quantization_config"]["expert_dtype"] = nullptr; }), std::pair(true, false));
  EXPECT_EQ(formats([](Json& j) { j["quantization_config"] = {{"quant_method", nullptr}}; }), std::pair(false, false));
  const ModelConfig bf16 = read_model_config(changed_inference([](Json& j) { j["dtype"] = "bf16"; }), "c.json");
  EXPECT_EQ(std::pair(bf16.fp8, bf16.expert_fp4), std::pair(false, true));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["dtype"] = "fp16"; })), HasSubstr("dtype is \"fp16\""));
  EXPECT_THAT(refusal(changed_inference([](Json& j) { j["expert_dtype"] = "fp8"; })),
              HasSubstr("expert_dtype is \"fp8\", expected \"fp4\" or null"));
}

TEST(ModelConfig, AConfigWithoutVisionOrYarnHasNone) {
  const ModelConfig text = read_model_config(changed_hf([](Json& j) {
                                               j.erase("vision_config");
                                               j["text_config"]["rope_scaling"] = nullptr;
                                             }),
                                             "c.json");
  EXPECT_FALSE(text.vision_enabled());
  EXPECT_EQ(text.original_seq_len, 0);
  EXPECT_EQ(text.vision_dim, ModelConfig().vision_dim);
}

TEST(ModelConfig, BrokenTextIsRefusedByName) {
  // A file that is no JSON is damaged; one that is JSON and says what cannot be is a wrong config.
  EXPECT_THAT(refusal("{\"dim\": 128", ExitCode::bad_input), HasSubstr("c.json: "));
  EXPECT_THAT(refusal("[]"), HasSubstr("expected an object"));
  EXPECT_THAT(refusal("{\"dim\": 128, \"dim\": 128}", ExitCode::bad_input), HasSubstr("twice"));
  EXPECT_THAT(refusal(std::string("{\"dim\": 128}\0x", 14), ExitCode::bad_input), HasSubstr("a NUL byte"));
  EXPECT_THAT(refusal("{\"norm_eps\": 1e999}", ExitCode::bad_input), HasSubstr("c.json: "));
}

TEST(ModelConfig, SourcesAndExpertsOfALayerFollowTheLists) {
  const ModelConfig c = test::released_config();
  EXPECT_EQ(c.kv_source_of(1), -1);
  EXPECT_EQ(c.kv_source_of(2), 2);
  EXPECT_EQ(c.kv_source_of(7), 2);
  EXPECT_EQ(c.kv_source_of(39), 20);
  EXPECT_EQ(c.index_source_of(31), 28);
  EXPECT_TRUE(c.is_kv_source(14));
  EXPECT_FALSE(c.is_kv_source(24));
  EXPECT_TRUE(c.is_index_source(24));
  EXPECT_EQ(c.cone_layer(), 20);
  EXPECT_EQ(c.engram_index(14), 1);
  EXPECT_EQ(c.engram_index(2), -1);
  EXPECT_EQ(c.engram_columns(), 24);
  EXPECT_EQ(c.routed_experts(39), 384);
  EXPECT_EQ(c.routed_experts(40), 128);
  EXPECT_EQ(c.activated_experts(40), 3);
  ModelConfig fallback = c;
  fallback.dspark_n_routed_experts = 0;
  fallback.dspark_n_activated_experts = 0;
  EXPECT_EQ(fallback.routed_experts(40), 384);
  EXPECT_EQ(fallback.activated_experts(40), 6);
}

TEST(ModelConfig, EveryConfigUnderInputsIsValid) {
  int n_files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(source_path("inputs/models"))) {
    const std::string name = entry.path().filename().string();
    const bool is_config = entry.path().extension() == ".json" &&
                           (entry.path().parent_path().filename() == "models" || name.ends_with("config.json")) &&
                           name != "tokenizer_config.json";
    if (!is_config) continue;
    EXPECT_NO_THROW((void)read_model_config(read_text(entry.path().string()), name)) << entry.path();
    ++n_files;
  }
  EXPECT_GE(n_files, 4);
}

}  // namespace
}  // namespace bathys::config
