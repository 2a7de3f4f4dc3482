// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::config {

enum class ScoreFunction { softmax, sigmoid, sqrtsoftplus };
[[nodiscard]] std::string_view score_function_name(ScoreFunction function);  // as in the configuration files

// What a model is: every shape and constant of a DeepSeek-V4.1 checkpoint.  Field names are the keys of the reference
// program's configuration ("inference form"); the Hugging Face form is mapped onto them.  Construct through
// read_model_config, which validates: whoever holds a ModelConfig may rely on every relation listed at validate().
struct ModelConfig {
  // formats
  bool fp8 = true;         // dtype: "fp8" (E4M3 linears with 32x32 scales) or "bf16"
  bool expert_fp4 = true;  // expert_dtype: "fp4" (routed experts E2M1 with 1x32 scales) or as `dtype`
  // shape
  std::int64_t vocab_size = 129280;
  int dim = 1024;
  int moe_inter_dim = 1024;
  int n_layers = 5;
  int n_mtp_layers = 1;
  int n_heads = 16;
  // experts
  int n_routed_experts = 8;
  int n_shared_experts = 1;
  int n_activated_experts = 2;
  ScoreFunction score_func = ScoreFunction::sqrtsoftplus;
  double gate_temp = 1.0;
  bool norm_topk_prob = true;
  double route_scale = 1.0;
  double swiglu_limit = 0.0;  // 0: no clamp
  // attention
  int q_lora_rank = 256;
  int head_dim = 128;
  int rope_head_dim = 32;
  double norm_eps = 1e-20;
  int o_groups = 8;
  int o_lora_rank = 256;
  int window_size = 128;
  std::vector<int> compress_ratios = {0, 2, 2, 1, 1, 0};  // one per layer, draft stages included
  std::vector<int> kv_source_layers = {1, 3};
  std::vector<int> index_source_layers = {1, 3};
  // positions
  double compress_rope_theta = 40000.0;
  std::int64_t original_seq_len = 0;  // 0: no YaRN
  double rope_theta = 10000.0;
  double rope_factor = 40;
  double beta_fast = 32;
  double beta_slow = 1;
  // indexer
  int index_n_heads = 16;
  int index_head_dim = 64;
  int index_topk = 64;
  int candidate_source_layer = -1;  // < 0: no candidate selection
  int candidate_topk_blocks = 0;
  int candidate_block_size = 0;
  // hyper-connections
  int hc_mult = 4;
  int hc_sinkhorn_iters = 20;
  double hc_eps = 1e-6;
  // Engram
  std::vector<int> engram_layer_ids;
  std::vector<std::int64_t> engram_num_embeddings;
  int engram_max_ngram_size = 1;
  std::int64_t engram_vocab_size = 0;
  int engram_n_heads = 0;
  int engram_head_dim = 0;
  std::int64_t engram_pad_id = 2;
  std::int64_t engram_compressed_vocab_size = 0;
  // vision
  int vision_n_layers = 0;
  int vision_dim = 1024;
  int vision_n_heads = 16;
  int vision_inter_dim = 2816;
  int vision_patch_size = 14;
  double vision_rope_theta = 10000.0;
  int vision_downsample_ratio = 3;
  int vision_max_n_token = 1024;
  std::int64_t vision_min_pixels = std::int64_t{544} * 544;
  std::optional<double> vision_max_wh_ratio;
  // special ids
  std::int64_t image_token_id = 129264;
  std::int64_t bos_token_id = 0;
  std::int64_t eos_token_id = 1;
  std::int64_t pad_token_id = 2;
  // draft head
  int dspark_block_size = 0;
  std::int64_t dspark_noise_token_id = 0;
  std::vector<int> dspark_target_layer_ids;
  int dspark_markov_rank = 256;
  int dspark_n_routed_experts = 0;     // 0: the backbone's
  int dspark_n_activated_experts = 0;  // 0: the backbone's
  // run-time size
  std::int64_t max_position_embeddings = 4096;  // default of max_length; 4096 where only the inference form exists

  bool operator==(const ModelConfig&) const = default;

  [[nodiscard]] bool vision_enabled() const { return vision_n_layers > 0; }
  [[nodiscard]] bool engram_enabled() const { return !engram_layer_ids.empty(); }
  [[nodiscard]] int n_all_layers() const { return n_layers + n_mtp_layers; }
  [[nodiscard]] int ratio(int layer) const { return compress_ratios[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] int routed_experts(int layer) const;     // of a backbone layer or a draft stage (layer >= n_layers)
  [[nodiscard]] int activated_experts(int layer) const;  // likewise
  [[nodiscard]] bool is_kv_source(int layer) const;
  [[nodiscard]] bool is_index_source(int layer) const;
  // The nearest source at or below a layer with ratio > 0: whose compressed KV and keys (whose selection) the layer
  // reads; -1 if none.
  [[nodiscard]] int kv_source_of(int layer) const;
  [[nodiscard]] int index_source_of(int layer) const;
  // Number of a layer among engram_layer_ids, or -1.
  [[nodiscard]] int engram_index(int layer) const;
  // n-gram sizes 2..max times heads: the table rows fetched per token and Engram layer.
  [[nodiscard]] int engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  // The last KV source: from this layer on nothing is produced that later positions read, except each layer's own
  // window KV; -1 without sources.
  [[nodiscard]] int cone_layer() const { return kv_source_layers.empty() ? -1 : kv_source_layers.back(); }
};

// Reads either JSON form (told apart by text_config) strictly and validates.  `name` is the file's name for messages.
// Keys missing from the inference form have the defaults above; the Hugging Face form must have its keys, but for those
// of a draft head where there are no draft stages.  Values of a feature that is off (YaRN, candidates, Engram, vision,
// draft head) are checked like all others and then set to their defaults: they are no part of the model, and two
// spellings of one model compare equal. The inference form also takes bos_token_id, eos_token_id, pad_token_id and
// max_position_embeddings, which to_inference_json writes, and ignores the reference's run-time limits max_batch_size,
// max_seq_len and temperature.
//   throws Error(ExitCode::usage): unknown key, wrong type, impossible combination, with the key's path, what was
//   found, what is allowed
ModelConfig read_model_config(std::string_view json_text, std::string_view name);

// Checks every relation between fields; the messages use the key names of the inference form.  A valid config has
// positive sizes whose products (tensor elements, the whole model's bytes, cache rows) fit 63 bits, matrix sides below
// 2^31, source lists that own every compressed layer, groups of 32 wherever something is quantized, and Engram tables
// of the derived size.
//   throws Error(ExitCode::usage)
void validate(const ModelConfig& config, std::string_view name);

// The whole config in the inference form, defaults included, keys in a fixed order: the record that shards and reports
// carry. Reading it back gives an equal config.
std::string to_inference_json(const ModelConfig& config);

}  // namespace bathys::config
