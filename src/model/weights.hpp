// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/hyper_connection.hpp"
#include "kernels/linear.hpp"

#include <cstdint>
#include <optional>
#include <vector>

// The weights of one rank, packed as the kernels take them.  Letters as in kernels/views.hpp; "local": this rank's
// share.
namespace bathys::model {

using kernels::bf16;
using kernels::Mat;
using kernels::PackedLinear;
using kernels::Vec;

struct AttentionWeights {
  PackedLinear wq_a;  // [q_lora, D]
  PackedLinear wq_b;  // [local H * d, q_lora]
  PackedLinear wkv;   // [d, D]
  PackedLinear wo_a;  // local output groups stacked: [o_lora, H*d/G] each
  PackedLinear wo_b;  // local output groups stacked: [D, o_lora] each
  Vec<const bf16> q_norm, kv_norm;
  Vec<const float> sink;  // [local H]
};

struct CompressorWeights {            // KV sources
  PackedLinear wkv;                   // [d, D] bf16
  std::optional<PackedLinear> wgate;  // [d, D] bf16, ratio > 1
  Vec<const bf16> norm;               // [d]
  PackedLinear index_key;             // [id, d] bf16
  Vec<const bf16> key_norm;           // [id]
};

struct IndexerWeights {       // index sources
  PackedLinear wq_b;          // [IH*id, q_lora]
  PackedLinear weights_proj;  // [IH, D] bf16
};

struct SwigluWeights {  // one expert, or local experts stacked
  PackedLinear gate, up, down;
};

struct ExpertWeights {
  PackedLinear router;  // [E, D] bf16
  Vec<const float> bias;
  Vec<const float> bias_image;  // empty without vision
  int first_local = 0, local = 0;
  SwigluWeights routed, shared;
};

struct EngramWeights {
  Mat<const std::uint8_t> codes;   // [local rows, hd] E4M3
  Mat<const std::uint8_t> scales;  // [local rows, hd/32] E8M0
  std::int64_t first_row = 0;
  PackedLinear wkv;                    // [(M+1)*D, columns*hd]
  Mat<const bf16> q_weight, k_weight;  // [M, D]
};

struct LayerWeights {
  Vec<const bf16> attn_norm, ffn_norm;
  kernels::HyperConnectionWeights hc_attn, hc_ffn;
  AttentionWeights attention;
  std::optional<CompressorWeights> compressor;
  std::optional<IndexerWeights> indexer;
  ExpertWeights experts;
  std::optional<EngramWeights> engram;
};

struct ModelWeights {
  Mat<const bf16> embed;  // [local V, D]
  std::int64_t first_vocab = 0;
  PackedLinear head;  // [local V, D] bf16
  Vec<const bf16> norm;
  std::vector<LayerWeights> layers;        // backbone
  std::vector<std::int32_t> token_map;     // compressed id of each token id; empty without Engram
  std::vector<Vec<std::uint8_t>> storage;  // what the plain Views above look into
  std::int64_t packed_bytes = 0;           // counted bytes of all of the above in device memory
};

}  // namespace bathys::model
