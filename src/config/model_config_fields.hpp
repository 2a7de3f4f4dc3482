// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"

namespace bathys::config {

// Calls visit(key, field) for every field of a ModelConfig but the two formats, with its key in the inference form:
// reader and writer walk this one list.  `Config` is ModelConfig or const ModelConfig.
template <class Config, class Visit>
void visit_fields(Config& config, Visit&& visit) {
  visit("vocab_size", config.vocab_size);
  visit("dim", config.dim);
  visit("moe_inter_dim", config.moe_inter_dim);
  visit("n_layers", config.n_layers);
  visit("n_mtp_layers", config.n_mtp_layers);
  visit("n_heads", config.n_heads);
  visit("n_routed_experts", config.n_routed_experts);
  visit("n_shared_experts", config.n_shared_experts);
  visit("n_activated_experts", config.n_activated_experts);
  visit("score_func", config.score_func);
  visit("gate_temp", config.gate_temp);
  visit("norm_topk_prob", config.norm_topk_prob);
  visit("route_scale", config.route_scale);
  visit("swiglu_limit", config.swiglu_limit);
  visit("q_lora_rank", config.q_lora_rank);
  visit("head_dim", config.head_dim);
  visit("rope_head_dim", config.rope_head_dim);
  visit("norm_eps", config.norm_eps);
  visit("o_groups", config.o_groups);
  visit("o_lora_rank", config.o_lora_rank);
  visit("window_size", config.window_size);
  visit("compress_ratios", config.compress_ratios);
  visit("kv_source_layers", config.kv_source_layers);
  visit("index_source_layers", config.index_source_layers);
  visit("compress_rope_theta", config.compress_rope_theta);
  visit("original_seq_len", config.original_seq_len);
  visit("rope_theta", config.rope_theta);
  visit("rope_factor", config.rope_factor);
  visit("beta_fast", config.beta_fast);
  visit("beta_slow", config.beta_slow);
  visit("index_n_heads", config.index_n_heads);
  visit("index_head_dim", config.index_head_dim);
  visit("index_topk", config.index_topk);
  visit("candidate_source_layer", config.candidate_source_layer);
  visit("candidate_topk_blocks", config.candidate_topk_blocks);
  visit("candidate_block_size", config.candidate_block_size);
  visit("hc_mult", config.hc_mult);
  visit("hc_sinkhorn_iters", config.hc_sinkhorn_iters);
  visit("hc_eps", config.hc_eps);
  visit("engram_layer_ids", config.engram_layer_ids);
  visit("engram_num_embeddings", config.engram_num_embeddings);
  visit("engram_max_ngram_size", config.engram_max_ngram_size);
  visit("engram_vocab_size", config.engram_vocab_size);
  visit("engram_n_heads", config.engram_n_heads);
  visit("engram_head_dim", config.engram_head_dim);
  visit("engram_pad_id", config.engram_pad_id);
  visit("engram_compressed_vocab_size", config.engram_compressed_vocab_size);
  visit("vision_n_layers", config.vision_n_layers);
  visit("vision_dim", config.vision_dim);
  visit("vision_n_heads", config.vision_n_heads);
  visit("vision_inter_dim", config.vision_inter_dim);
  visit("vision_patch_size", config.vision_patch_size);
  visit("vision_rope_theta", config.vision_rope_theta);
  visit("vision_downsample_ratio", config.vision_downsample_ratio);
  visit("vision_max_n_token", config.vision_max_n_token);
  visit("vision_min_pixels", config.vision_min_pixels);
  visit("vision_max_wh_ratio", config.vision_max_wh_ratio);
  visit("image_token_id", config.image_token_id);
  visit("bos_token_id", config.bos_token_id);
  visit("eos_token_id", config.eos_token_id);
  visit("pad_token_id", config.pad_token_id);
  visit("dspark_block_size", config.dspark_block_size);
  visit("dspark_noise_token_id", config.dspark_noise_token_id);
  visit("dspark_target_layer_ids", config.dspark_target_layer_ids);
  visit("dspark_markov_rank", config.dspark_markov_rank);
  visit("dspark_n_routed_experts", config.dspark_n_routed_experts);
  visit("dspark_n_activated_experts", config.dspark_n_activated_experts);
  visit("max_position_embeddings", config.max_position_embeddings);
}

}  // namespace bathys::config
