// SPDX-License-Identifier: Apache-2.0
#include "config/model_config.hpp"
#include "config/model_files.hpp"
#include "core/error.hpp"

#include <ctime>
#include <functional>
#include <limits>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::config {
namespace {

using test::config_of;
using ::testing::HasSubstr;

using Change = std::function<void(ModelConfig&)>;

ModelConfig base() { return config_of("tests/golden/base/model/config.json"); }
ModelConfig vision() { return config_of("tests/golden/vision/model/config.json"); }
ModelConfig plain() { return config_of("tests/golden/plain/model/config.json"); }

void expect_refused(ModelConfig config, const Change& change, const std::string& message) {
  change(config);
  try {
    validate(config, "c.json");
    ADD_FAILURE() << "accepted, expected: " << message;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    EXPECT_THAT(error.what(), HasSubstr("c.json: " + message));
  }
}

void expect_accepted(ModelConfig config, const Change& change) {
  change(config);
  EXPECT_NO_THROW(validate(config, "c.json"));
}

TEST(ValidateModelConfig, SizesArePositiveAndNotAbsurd) {
  expect_refused(
      base(), [](auto& c) { c.dim = 0; }, "dim is 0, expected 1 to");
  expect_refused(
      base(), [](auto& c) { c.dim = -128; }, "dim is -128, expected 1 to");
  expect_refused(
      base(), [](auto& c) { c.dim = std::numeric_limits<int>::max(); }, "dim is 2147483647");
  expect_refused(
      base(), [](auto& c) { c.vocab_size = 0; }, "vocab_size is 0");
  expect_refused(
      base(), [](auto& c) { c.vocab_size = std::numeric_limits<std::int64_t>::max(); }, "vocab_size is");
  // The sum of a row's exponentials has room for fewer than 2^18 of them.
  expect_refused(
      base(), [](auto& c) { c.vocab_size = 1 << 18; }, "vocab_size is 262144, expected 8 to 262143");
  expect_accepted(base(), [](auto& c) { c.vocab_size = (1 << 18) - 1; });
  expect_refused(
      base(), [](auto& c) { c.window_size = 0; }, "window_size is 0");
  expect_refused(
      base(), [](auto& c) { c.hc_mult = 0; }, "hc_mult is 0");
  expect_refused(
      base(), [](auto& c) { c.hc_sinkhorn_iters = 0; }, "hc_sinkhorn_iters is 0");
  expect_refused(
      base(), [](auto& c) { c.n_mtp_layers = -1; }, "n_mtp_layers is -1");
  expect_refused(
      base(), [](auto& c) { c.vision_n_layers = -1; }, "vision_n_layers is -1");
  expect_refused(
      base(), [](auto& c) { c.max_position_embeddings = 0; }, "max_position_embeddings is 0");
  expect_refused(
      base(), [](auto& c) { c.original_seq_len = -1; }, "original_seq_len is -1");
  expect_refused(
      base(),
      [](auto& c) {
        c.n_heads = 1 << 24;
        c.head_dim = 1 << 24;
      },
      "n_heads * head_dim is 281474976710656");
  expect_refused(
      base(), [](auto& c) { c.n_routed_experts = 1 << 20; }, "n_routed_experts is 1048576");
}

TEST(ValidateModelConfig, AModelBeyondEveryMemoryIsRefusedWithoutOverflow) {
  expect_refused(
      plain(),
      [](auto& c) {
        c.dim = 1 << 24;
        c.moe_inter_dim = 1 << 24;
        c.n_routed_experts = 65536;
      },
      "the number of weights is");
}

TEST(ValidateModelConfig, NumbersAreInTheirRanges) {
  expect_refused(
      base(), [](auto& c) { c.norm_eps = -1; }, "norm_eps is -1");
  expect_refused(
      base(), [](auto& c) { c.hc_eps = std::numeric_limits<double>::quiet_NaN(); }, "hc_eps is nan");
  expect_refused(
      base(), [](auto& c) { c.route_scale = 1e300; }, "route_scale is 1e+300");
  expect_refused(
      base(), [](auto& c) { c.gate_temp = 0; }, "gate_temp is 0");
  expect_refused(
      base(), [](auto& c) { c.swiglu_limit = -1; }, "swiglu_limit is -1");
  expect_refused(
      base(), [](auto& c) { c.rope_theta = 1; }, "rope_theta is 1, expected a number above 1");
  expect_refused(
      base(), [](auto& c) { c.rope_factor = 0; }, "rope_factor is 0");
  expect_refused(
      base(), [](auto& c) { c.beta_slow = 64; }, "beta_fast is 32, expected at least beta_slow, 64");
}

TEST(ValidateModelConfig, HeadsSplitOverOutputGroups) {
  expect_refused(
      base(), [](auto& c) { c.o_groups = 3; }, "n_heads is 8, expected a multiple of 3");
  expect_refused(
      base(), [](auto& c) { c.o_groups = 16; }, "n_heads is 8, expected a multiple of 16");
  expect_refused(
      base(), [](auto& c) { c.rope_head_dim = 15; },
      "rope_head_dim is 15, expected an even number from 2 to head_dim, 64");
  expect_refused(
      base(), [](auto& c) { c.rope_head_dim = 66; }, "rope_head_dim is 66");
  expect_refused(
      base(), [](auto& c) { c.rope_head_dim = 0; }, "rope_head_dim is 0");
  expect_refused(
      base(), [](auto& c) { c.head_dim = 48; }, "head_dim is 48, expected a multiple of 32");
}

TEST(ValidateModelConfig, EveryLayerHasARatioAndDraftStagesHaveNone) {
  expect_refused(
      base(), [](auto& c) { c.compress_ratios.pop_back(); }, "the length of compress_ratios is 12, expected 13");
  expect_refused(
      base(), [](auto& c) { c.compress_ratios.push_back(0); }, "the length of compress_ratios is 14, expected 13");
  expect_refused(
      base(), [](auto& c) { c.compress_ratios[12] = 1; }, "compress_ratios[12] is 1, expected 0: a draft stage");
  expect_refused(
      base(), [](auto& c) { c.compress_ratios[3] = -2; }, "compress_ratios[3] is -2");
}

TEST(ValidateModelConfig, SourcesOwnWhatLayersRead) {
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {4, 2, 6};
      },
      "kv_source_layers is [4, 2, 6], expected ascending");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {2, 2, 6};
      },
      "kv_source_layers is [2, 2, 6], expected ascending");
  expect_refused(
      base(),
      [](auto& c) {
        c.index_source_layers = {2, 4, 6, 10};
      },
      "index_source_layers is [2, 4, 6, 10], expected layers 0 to 9");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {-1, 2, 6};
      },
      "kv_source_layers is [-1, 2, 6], expected layers 0 to 9");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {0, 2, 4, 6};
      },
      "kv_source_layers is [0, 2, 4, 6], expected layers with a ratio above 0");
  expect_refused(
      base(), [](auto& c) { c.index_source_layers = {0, 2, 4, 5, 6, 8}; },
      "index_source_layers is [0, 2, 4, 5, 6, 8], expected layers with a ratio above 0");
  expect_refused(
      base(),
      [](auto& c) {
        c.index_source_layers = {2, 5, 6, 8};
      },
      "index_source_layers is [2, 5, 6, 8], expected every KV source in it");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {4, 6};
        c.index_source_layers = {4, 5, 6, 8};
      },
      "kv_source_layers is [4, 6], expected a source at or below layer 2");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {};
        c.index_source_layers = {};
      },
      "kv_source_layers is [], expected a source");
  expect_refused(
      base(), [](auto& c) { c.compress_ratios[7] = 2; },
      "compress_ratios[7] is 2, expected 1, the ratio of KV source 6");
  expect_refused(
      base(),
      [](auto& c) {
        c.kv_source_layers = {2, 4};
      },
      "compress_ratios[6] is 1, expected 2, the ratio of KV source 4");
}

TEST(ValidateModelConfig, AModelWithoutCompressedLayersNeedsNoSources) {
  expect_accepted(plain(), [](auto& c) {
    c.compress_ratios.assign(6, 0);
    c.kv_source_layers.clear();
    c.index_source_layers.clear();
    c.index_topk = 0;
  });
}

TEST(ValidateModelConfig, TheIndexerHasItsSizes) {
  expect_refused(
      base(), [](auto& c) { c.index_topk = 0; }, "index_topk is 0");
  expect_refused(
      base(), [](auto& c) { c.index_n_heads = 0; }, "index_n_heads is 0");
  expect_refused(
      base(), [](auto& c) { c.index_head_dim = 48; }, "index_head_dim is 48, expected a multiple of 32");
  expect_refused(
      base(), [](auto& c) { c.rope_head_dim = 64; }, "index_head_dim is 32, expected at least rope_head_dim, 64");
}

TEST(ValidateModelConfig, CandidatesComeFromAnIndexSourceOfTheLastCache) {
  expect_refused(
      base(), [](auto& c) { c.candidate_source_layer = 7; },
      "candidate_source_layer is 7, expected one of index_source_layers");
  expect_refused(
      base(), [](auto& c) { c.candidate_source_layer = 100; }, "candidate_source_layer is 100");
  expect_refused(
      base(), [](auto& c) { c.candidate_source_layer = 4; },
      "candidate_source_layer is 4, expected a layer that reads the last KV source 6");
  expect_refused(
      base(), [](auto& c) { c.candidate_topk_blocks = 0; }, "candidate_topk_blocks is 0");
  expect_refused(
      base(), [](auto& c) { c.candidate_block_size = 0; }, "candidate_block_size is 0");
  expect_accepted(base(), [](auto& c) { c.candidate_source_layer = 8; });
}

TEST(ValidateModelConfig, ExpertsCanBeChosen) {
  expect_refused(
      base(), [](auto& c) { c.n_activated_experts = 17; }, "n_activated_experts is 17, expected 1 to 16");
  expect_refused(
      base(), [](auto& c) { c.n_activated_experts = 0; }, "n_activated_experts is 0");
  expect_refused(
      base(), [](auto& c) { c.n_shared_experts = 2; }, "n_shared_experts is 2, expected 1 to 1");
  expect_refused(
      base(), [](auto& c) { c.dspark_n_activated_experts = 9; }, "dspark_n_activated_experts is 9, expected 0 to 8");
  // 0 takes the backbone's number, 3, of the draft stage's 2 experts.
  expect_refused(
      base(),
      [](auto& c) {
        c.dspark_n_activated_experts = 0;
        c.dspark_n_routed_experts = 2;
      },
      "the number of experts a draft stage activates is 3, expected 1 to 2");
}

TEST(ValidateModelConfig, QuantizedInputsComeInGroupsOf32) {
  expect_refused(
      base(), [](auto& c) { c.dim = 144; }, "dim is 144, expected a multiple of 32: FP8");
  expect_refused(
      base(), [](auto& c) { c.q_lora_rank = 40; }, "q_lora_rank is 40, expected a multiple of 32");
  expect_refused(
      base(), [](auto& c) { c.o_lora_rank = 16; }, "o_lora_rank is 16, expected a multiple of 32");
  expect_refused(
      base(), [](auto& c) { c.moe_inter_dim = 80; }, "moe_inter_dim is 80, expected a multiple of 32");
  expect_refused(
      base(), [](auto& c) { c.engram_head_dim = 16; }, "engram_head_dim is 16, expected a multiple of 32");
  expect_accepted(plain(), [](auto& c) {
    c.moe_inter_dim = 80;
    c.o_lora_rank = 20;
    c.q_lora_rank = 40;
    c.dim = 100;
  });
  expect_refused(
      plain(),
      [](auto& c) {
        c.expert_fp4 = true;
        c.moe_inter_dim = 80;
      },
      "moe_inter_dim is 80, expected a multiple of 32: FP4");
}

TEST(ValidateModelConfig, TokenIdsAreInTheVocabulary) {
  expect_refused(
      base(), [](auto& c) { c.eos_token_id = 512; }, "eos_token_id is 512, expected 0 to 511");
  expect_refused(
      base(), [](auto& c) { c.bos_token_id = -1; }, "bos_token_id is -1");
  expect_refused(
      base(), [](auto& c) { c.pad_token_id = 1000; }, "pad_token_id is 1000");
  expect_refused(
      base(), [](auto& c) { c.dspark_noise_token_id = 512; }, "dspark_noise_token_id is 512");
  expect_refused(
      base(), [](auto& c) { c.engram_pad_id = 512; }, "engram_pad_id is 512");
  expect_refused(
      vision(), [](auto& c) { c.image_token_id = 448; }, "image_token_id is 448, expected 0 to 447");
  expect_accepted(base(), [](auto& c) { c.image_token_id = 129264; });  // no vision tower: never met
}

TEST(ValidateModelConfig, EngramTablesHaveTheDerivedSize) {
  expect_refused(
      base(), [](auto& c) { c.engram_num_embeddings[1] = 2147; }, "engram_num_embeddings[1] is 2147, expected 2148");
  expect_refused(
      base(), [](auto& c) { c.engram_num_embeddings.pop_back(); },
      "the length of engram_num_embeddings is 1, expected 2");
  expect_refused(
      plain(), [](auto& c) { c.engram_num_embeddings = {5}; }, "the length of engram_num_embeddings is 1, expected 0");
  expect_refused(
      base(),
      [](auto& c) {
        c.engram_layer_ids = {4, 1};
      },
      "engram_layer_ids is [4, 1], expected ascending");
  expect_refused(
      base(),
      [](auto& c) {
        c.engram_layer_ids = {1, 10};
      },
      "engram_layer_ids is [1, 10], expected layers 0 to 9");
  expect_refused(
      base(), [](auto& c) { c.engram_max_ngram_size = 1; }, "engram_max_ngram_size is 1");
  expect_refused(
      base(), [](auto& c) { c.engram_n_heads = 0; }, "engram_n_heads is 0");
  expect_refused(
      base(), [](auto& c) { c.engram_vocab_size = 0; }, "engram_vocab_size is 0");
  expect_refused(
      base(), [](auto& c) { c.engram_vocab_size = std::numeric_limits<std::int64_t>::max(); }, "engram_vocab_size is");
  expect_refused(
      base(), [](auto& c) { c.engram_compressed_vocab_size = 513; },
      "engram_compressed_vocab_size is 513, expected 1 to 512");
  expect_refused(
      base(), [](auto& c) { c.engram_compressed_vocab_size = 0; }, "engram_compressed_vocab_size is 0");
  expect_refused(
      base(),
      [](auto& c) {
        c.engram_n_heads = 4096;
        c.engram_max_ngram_size = 64;
      },
      "the number of hash columns");
}

TEST(ValidateModelConfig, TheLargestPrimeSearchIsQuick) {
  const std::clock_t start = std::clock();
  expect_refused(
      base(),
      [](auto& c) {
        c.engram_vocab_size = std::int64_t{1} << 40;
        c.engram_n_heads = 682;
      },
      "engram_num_embeddings[0] is 1916");
  EXPECT_LT((std::clock() - start) / CLOCKS_PER_SEC, 30);  // of CPU; a search prime by prime would take hours
}

TEST(ValidateModelConfig, TheDraftHeadReadsBackboneLayers) {
  expect_refused(
      base(),
      [](auto& c) {
        c.dspark_target_layer_ids = {7, 8, 10};
      },
      "dspark_target_layer_ids is [7, 8, 10], expected layers 0 to 9");
  expect_refused(
      base(), [](auto& c) { c.dspark_target_layer_ids = {}; },
      "dspark_target_layer_ids is [], expected at least one layer");
  expect_refused(
      base(),
      [](auto& c) {
        c.dspark_target_layer_ids = {8, 7};
      },
      "dspark_target_layer_ids is [8, 7], expected ascending");
  expect_refused(
      base(), [](auto& c) { c.dspark_block_size = 0; }, "dspark_block_size is 0");
  expect_refused(
      base(), [](auto& c) { c.dspark_markov_rank = 0; }, "dspark_markov_rank is 0");
}

TEST(ValidateModelConfig, TheVisionTowerHasItsSizes) {
  expect_refused(
      vision(), [](auto& c) { c.vision_n_heads = 5; }, "vision_dim is 64, expected a multiple of 20");
  expect_refused(
      vision(), [](auto& c) { c.vision_n_heads = 32; }, "vision_dim is 64, expected a multiple of 128");
  expect_refused(
      vision(), [](auto& c) { c.vision_patch_size = 0; }, "vision_patch_size is 0");
  expect_refused(
      vision(), [](auto& c) { c.vision_downsample_ratio = 0; }, "vision_downsample_ratio is 0");
  expect_refused(
      vision(), [](auto& c) { c.vision_max_n_token = 3; }, "vision_max_n_token is 3");
  expect_refused(
      vision(), [](auto& c) { c.vision_min_pixels = -1; }, "vision_min_pixels is -1");
  expect_refused(
      vision(), [](auto& c) { c.vision_max_wh_ratio = 0; }, "vision_max_wh_ratio is 0");
  expect_refused(
      vision(), [](auto& c) { c.vision_rope_theta = 0; }, "vision_rope_theta is 0");
  expect_accepted(vision(), [](auto& c) { c.vision_max_wh_ratio = 8; });
}

}  // namespace
}  // namespace bathys::config
