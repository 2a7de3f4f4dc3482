// SPDX-License-Identifier: Apache-2.0
#include "config/engram_layout.hpp"
#include "config/model_config.hpp"
#include "config/model_config_fields.hpp"
#include "core/error.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <functional>
#include <limits>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace bathys::config {
namespace {

// Bounds far above any real model, small enough that no product taken of valid sizes overflows.
constexpr std::int64_t kMaxSide = std::int64_t{1} << 24;               // one factor of a matrix side
constexpr std::int64_t kMaxProduct = std::numeric_limits<int>::max();  // a matrix side
// The exponentials of a row of logits, each at most 1, are summed over the vocabulary in units of 2^-44 and must stay
// below 2^62 (docs/numerics.md, "Sums across ranks").
constexpr std::int64_t kMaxVocab = (std::int64_t{1} << 18) - 1;
constexpr std::int64_t kMaxLayers = 4096;
constexpr std::int64_t kMaxExperts = 65536;
constexpr std::int64_t kMaxAllExperts = std::int64_t{1} << 20;
constexpr std::int64_t kMaxPositions = std::int64_t{1} << 40;
constexpr std::int64_t kMaxEngramVocab = std::int64_t{1} << 40;
constexpr std::int64_t kMaxEngramColumns = 4096;  // of all Engram layers together
constexpr double kMaxElements = 0x1p58;           // 2^60 bytes at four bytes each
constexpr int kGroup = 32;                        // inputs that share a scale

// How a value is shown in a message.
std::string shown(const std::vector<int>& list) {
  std::string text;
  for (const int value : list) text += (text.empty() ? "" : ", ") + fmt::to_string(value);
  return "[" + text + "]";
}
template <class T>
std::string shown(const T& value) {
  return fmt::format("{}", value);
}

// Throws "<file>: <key> is <found>, expected <expected>".
class Checker {
 public:
  Checker(const ModelConfig& config, std::string_view name) : c_(config), name_(name) {}

  void check_all() const {
    check_sizes();
    check_numbers();
    check_heads();
    check_ratios();
    check_sources();
    check_candidates();
    check_experts();
    check_quantized_groups();
    check_tokens();
    if (c_.n_mtp_layers > 0) check_draft();
    if (c_.vision_enabled()) check_vision();
    check_engram();
    check_total();
  }

 private:
  template <class Found, class... Args>
  void expect(bool holds, std::string_view key, const Found& found, fmt::format_string<Args...> expected,
              Args&&... args) const {
    if (holds) return;
    fail(ExitCode::usage, "{}: {} is {}, expected {}", name_, key, shown(found),
         fmt::format(expected, std::forward<Args>(args)...));
  }
  void in_range(std::string_view key, std::int64_t value, std::int64_t low, std::int64_t high) const {
    expect(value >= low && value <= high, key, value, "{} to {}", low, high);
  }
  void size(std::string_view key, std::int64_t value) const { in_range(key, value, 1, kMaxSide); }
  void multiple(std::string_view key, std::int64_t value, std::int64_t of, std::string_view why) const {
    expect(value % of == 0, key, value, "a multiple of {}: {}", of, why);
  }
  void product(std::string_view what, std::int64_t a, std::int64_t b) const {
    expect(a * b <= kMaxProduct, what, a * b, "at most {}", kMaxProduct);
  }
  void ascending(std::string_view key, const std::vector<int>& list) const {
    const bool holds = std::adjacent_find(list.begin(), list.end(), std::greater_equal<>()) == list.end();
    expect(holds, key, list, "ascending layer numbers, none twice");
  }
  void backbone_layers(std::string_view key, const std::vector<int>& list) const {
    ascending(key, list);
    const bool holds = list.empty() || (list.front() >= 0 && list.back() < c_.n_layers);
    expect(holds, key, list, "layers 0 to {}, the backbone's", c_.n_layers - 1);
  }

  void check_sizes() const {
    in_range("vocab_size", c_.vocab_size, std::max(c_.o_groups, 1), kMaxVocab);  // each rank has a row
    in_range("n_layers", c_.n_layers, 1, kMaxLayers);
    in_range("n_mtp_layers", c_.n_mtp_layers, 0, kMaxLayers);
    in_range("vision_n_layers", c_.vision_n_layers, 0, kMaxLayers);
    size("dim", c_.dim);
    size("moe_inter_dim", c_.moe_inter_dim);
    size("n_heads", c_.n_heads);
    size("head_dim", c_.head_dim);
    size("q_lora_rank", c_.q_lora_rank);
    size("o_groups", c_.o_groups);
    size("o_lora_rank", c_.o_lora_rank);
    size("window_size", c_.window_size);
    in_range("hc_mult", c_.hc_mult, 1, 8);  // kernels/hyper_connection keeps a token's mix in registers
    in_range("hc_sinkhorn_iters", c_.hc_sinkhorn_iters, 1, 10000);
    in_range("original_seq_len", c_.original_seq_len, 0, kMaxPositions);
    in_range("max_position_embeddings", c_.max_position_embeddings, 1, kMaxPositions);
    product("n_heads * head_dim", c_.n_heads, c_.head_dim);
    product("o_groups * o_lora_rank", c_.o_groups, c_.o_lora_rank);
    product("hc_mult * dim", c_.hc_mult, c_.dim);
  }

  void check_numbers() const {
    visit_fields(c_, [&](std::string_view key, const auto& field) {
      if constexpr (std::is_same_v<std::decay_t<decltype(field)>, double>) {
        const bool holds = std::abs(field) <= static_cast<double>(std::numeric_limits<float>::max());
        expect(holds, key, field, "a number that float32 holds");
      }
    });
    const auto positive = [&](std::string_view key, double value) {
      expect(value > 0, key, value, "a number above 0");
    };
    const auto not_negative = [&](std::string_view key, double value) {
      expect(value >= 0, key, value, "0 or a number above 0");
    };
    const auto base = [&](std::string_view key, double value) { expect(value > 1, key, value, "a number above 1"); };
    positive("gate_temp", c_.gate_temp);
    positive("route_scale", c_.route_scale);
    not_negative("swiglu_limit", c_.swiglu_limit);
    not_negative("norm_eps", c_.norm_eps);
    not_negative("hc_eps", c_.hc_eps);
    base("rope_theta", c_.rope_theta);
    base("compress_rope_theta", c_.compress_rope_theta);
    if (c_.original_seq_len == 0) return;
    positive("rope_factor", c_.rope_factor);
    positive("beta_slow", c_.beta_slow);
    expect(c_.beta_fast >= c_.beta_slow, "beta_fast", c_.beta_fast, "at least beta_slow, {}", c_.beta_slow);
  }

  void check_heads() const {
    multiple("n_heads", c_.n_heads, c_.o_groups, "each of the o_groups output groups has the same number of heads");
    expect(c_.rope_head_dim >= 2 && c_.rope_head_dim % 2 == 0 && c_.rope_head_dim <= c_.head_dim, "rope_head_dim",
           c_.rope_head_dim, "an even number from 2 to head_dim, {}", c_.head_dim);
    multiple("head_dim", c_.head_dim, kGroup, "the window cache holds groups of 32 values");
  }

  void check_ratios() const {
    const std::vector<int>& ratios = c_.compress_ratios;
    expect(ratios.size() == static_cast<std::size_t>(c_.n_all_layers()), "the length of compress_ratios", ratios.size(),
           "{}: n_layers {} + n_mtp_layers {}", c_.n_all_layers(), c_.n_layers, c_.n_mtp_layers);
    for (int layer = 0; layer < c_.n_all_layers(); ++layer) {
      const std::string key = fmt::format("compress_ratios[{}]", layer);
      in_range(key, c_.ratio(layer), 0, 65536);
      expect(layer < c_.n_layers || c_.ratio(layer) == 0, key, c_.ratio(layer),
             "0: a draft stage attends to its window only");
    }
  }

  void check_sources() const {
    backbone_layers("kv_source_layers", c_.kv_source_layers);
    backbone_layers("index_source_layers", c_.index_source_layers);
    for (const int source : c_.kv_source_layers) {
      expect(c_.ratio(source) > 0, "kv_source_layers", c_.kv_source_layers,
             "layers with a ratio above 0; layer {} has ratio 0 and owns no compressed KV", source);
      expect(c_.is_index_source(source), "index_source_layers", c_.index_source_layers,
             "every KV source in it; a selection made before layer {} does not fit its groups", source);
    }
    for (const int source : c_.index_source_layers) {
      expect(c_.ratio(source) > 0, "index_source_layers", c_.index_source_layers,
             "layers with a ratio above 0; layer {} has ratio 0 and selects nothing", source);
    }
    for (int layer = 0; layer < c_.n_layers; ++layer) {
      if (c_.ratio(layer) == 0) continue;
      const int source = c_.kv_source_of(layer);
      expect(source >= 0, "kv_source_layers", c_.kv_source_layers, "a source at or below layer {}, which has ratio {}",
             layer, c_.ratio(layer));
      expect(c_.ratio(source) == c_.ratio(layer), fmt::format("compress_ratios[{}]", layer), c_.ratio(layer),
             "{}, the ratio of KV source {}, which it reads", c_.ratio(source), source);
    }
    if (c_.index_source_layers.empty()) return;
    size("index_n_heads", c_.index_n_heads);
    size("index_head_dim", c_.index_head_dim);
    size("index_topk", c_.index_topk);
    product("index_n_heads * index_head_dim", c_.index_n_heads, c_.index_head_dim);
    multiple("index_head_dim", c_.index_head_dim, kGroup, "index keys are quantized in groups of 32");
    expect(c_.index_head_dim >= c_.rope_head_dim, "index_head_dim", c_.index_head_dim, "at least rope_head_dim, {}",
           c_.rope_head_dim);
  }

  void check_candidates() const {
    const int source = c_.candidate_source_layer;
    if (source < 0) return;
    expect(c_.is_index_source(source), "candidate_source_layer", source, "one of index_source_layers, or -1 for none");
    size("candidate_topk_blocks", c_.candidate_topk_blocks);
    size("candidate_block_size", c_.candidate_block_size);
    product("candidate_topk_blocks * candidate_block_size", c_.candidate_topk_blocks, c_.candidate_block_size);
    expect(c_.kv_source_of(source) == c_.kv_source_layers.back(), "candidate_source_layer", source,
           "a layer that reads the last KV source {}: its blocks restrict all later selections",
           c_.kv_source_layers.back());
  }

  void check_experts() const {
    in_range("n_routed_experts", c_.n_routed_experts, 1, kMaxExperts);
    in_range("n_shared_experts", c_.n_shared_experts, 1, 1);
    in_range("n_activated_experts", c_.n_activated_experts, 1,
             std::min(c_.n_routed_experts, 64));  // as the gate's kernel
    const std::int64_t all = std::int64_t{c_.n_layers} * c_.n_routed_experts +
                             std::int64_t{c_.n_mtp_layers} * std::max(c_.n_routed_experts, c_.dspark_n_routed_experts);
    expect(all <= kMaxAllExperts, "the number of experts of all layers", all, "at most {}", kMaxAllExperts);
  }

  void check_quantized_groups() const {
    if (c_.fp8) {
      constexpr std::string_view kWhy = "FP8 matrices have a scale for each 32 x 32 tile";
      multiple("dim", c_.dim, kGroup, kWhy);
      multiple("q_lora_rank", c_.q_lora_rank, kGroup, kWhy);
      multiple("o_lora_rank", c_.o_lora_rank, kGroup, kWhy);
      multiple("moe_inter_dim", c_.moe_inter_dim, kGroup, kWhy);
    }
    if (c_.expert_fp4) {
      constexpr std::string_view kWhy = "FP4 experts have a scale for each 32 inputs";
      multiple("dim", c_.dim, kGroup, kWhy);
      multiple("moe_inter_dim", c_.moe_inter_dim, kGroup, kWhy);
    }
  }

  void check_tokens() const {
    const auto token = [&](std::string_view key, std::int64_t id) { in_range(key, id, 0, c_.vocab_size - 1); };
    token("bos_token_id", c_.bos_token_id);
    token("eos_token_id", c_.eos_token_id);
    token("pad_token_id", c_.pad_token_id);
    if (c_.vision_enabled()) token("image_token_id", c_.image_token_id);
    if (c_.engram_enabled()) token("engram_pad_id", c_.engram_pad_id);
    if (c_.n_mtp_layers > 0) token("dspark_noise_token_id", c_.dspark_noise_token_id);
  }

  void check_draft() const {
    in_range("dspark_block_size", c_.dspark_block_size, 1, 4096);
    expect(!c_.dspark_target_layer_ids.empty(), "dspark_target_layer_ids", c_.dspark_target_layer_ids,
           "at least one layer, because n_mtp_layers is {}; a model without draft head has n_mtp_layers 0",
           c_.n_mtp_layers);
    backbone_layers("dspark_target_layer_ids", c_.dspark_target_layer_ids);
    size("dspark_markov_rank", c_.dspark_markov_rank);
    in_range("dspark_n_routed_experts", c_.dspark_n_routed_experts, 0, kMaxExperts);
    in_range("dspark_n_activated_experts", c_.dspark_n_activated_experts, 0, c_.routed_experts(c_.n_layers));
    in_range("the number of experts a draft stage activates", c_.activated_experts(c_.n_layers), 1,
             c_.routed_experts(c_.n_layers));
    product("dim * the number of dspark_target_layer_ids", c_.dim,
            static_cast<std::int64_t>(c_.dspark_target_layer_ids.size()));
  }

  void check_vision() const {
    size("vision_dim", c_.vision_dim);
    size("vision_n_heads", c_.vision_n_heads);
    size("vision_inter_dim", c_.vision_inter_dim);
    in_range("vision_patch_size", c_.vision_patch_size, 1, 4096);
    in_range("vision_downsample_ratio", c_.vision_downsample_ratio, 1, 4096);
    in_range("vision_max_n_token", c_.vision_max_n_token, 4, kMaxSide);  // one cell: start, cell, newline, end
    in_range("vision_min_pixels", c_.vision_min_pixels, 0, kMaxPositions);
    multiple("vision_dim", c_.vision_dim, std::int64_t{4} * c_.vision_n_heads,
             "each of the vision_n_heads heads rotates pairs for rows and for columns");
    product("vision_dim * vision_downsample_ratio^2", c_.vision_dim,
            std::int64_t{c_.vision_downsample_ratio} * c_.vision_downsample_ratio);
    expect(c_.vision_rope_theta > 1, "vision_rope_theta", c_.vision_rope_theta, "a number above 1");
    if (!c_.vision_max_wh_ratio) return;
    expect(*c_.vision_max_wh_ratio > 0 && *c_.vision_max_wh_ratio <= 1e6, "vision_max_wh_ratio",
           *c_.vision_max_wh_ratio, "null or a number above 0");
  }

  void check_engram() const {
    expect(c_.engram_num_embeddings.size() == c_.engram_layer_ids.size(), "the length of engram_num_embeddings",
           c_.engram_num_embeddings.size(), "{}, one entry for each of engram_layer_ids", c_.engram_layer_ids.size());
    if (!c_.engram_enabled()) return;
    backbone_layers("engram_layer_ids", c_.engram_layer_ids);
    in_range("engram_max_ngram_size", c_.engram_max_ngram_size, 2, 64);
    in_range("engram_n_heads", c_.engram_n_heads, 1, kMaxEngramColumns);
    in_range("engram_vocab_size", c_.engram_vocab_size, 2, kMaxEngramVocab);
    in_range("engram_compressed_vocab_size", c_.engram_compressed_vocab_size, 1, c_.vocab_size);
    size("engram_head_dim", c_.engram_head_dim);
    multiple("engram_head_dim", c_.engram_head_dim, kGroup, "a table row has a scale for each 32 values");
    const std::int64_t columns = std::int64_t{c_.engram_max_ngram_size - 1} * c_.engram_n_heads;
    in_range("the number of hash columns of all Engram layers",
             columns * static_cast<std::int64_t>(c_.engram_layer_ids.size()), 1, kMaxEngramColumns);
    product("hash columns * engram_head_dim", columns, c_.engram_head_dim);
    product("(hc_mult + 1) * dim", c_.hc_mult + 1, c_.dim);
    const EngramLayout layout = engram_layout(c_);
    for (std::size_t i = 0; i < layout.layers.size(); ++i) {
      expect(c_.engram_num_embeddings[i] == layout.layers[i].rows, fmt::format("engram_num_embeddings[{}]", i),
             c_.engram_num_embeddings[i], "{}, the sum of the layer's {} primes from engram_vocab_size {} on",
             layout.layers[i].rows, columns, c_.engram_vocab_size);
    }
  }

  // Elements of all weights, counted in double: far below 2^1024 whatever the factors, and exact enough to compare with
  // a bound.
  void check_total() const {
    const auto d = [](auto... factors) { return (1.0 * ... * static_cast<double>(factors)); };
    double layer = d(c_.dim, c_.q_lora_rank) + d(c_.q_lora_rank, c_.n_heads, c_.head_dim) + d(c_.dim, c_.head_dim, 3) +
                   d(c_.o_lora_rank, c_.n_heads, c_.head_dim) + d(c_.o_groups, c_.o_lora_rank, c_.dim) +
                   d(2, c_.hc_mult + 2, c_.hc_mult, c_.hc_mult, c_.dim) + d(3, c_.dim, c_.moe_inter_dim);
    if (!c_.index_source_layers.empty()) {
      layer += d(c_.index_n_heads, c_.index_head_dim, c_.q_lora_rank) + d(c_.index_n_heads, c_.dim) +
               d(c_.index_head_dim, c_.head_dim);
    }
    const double expert = d(3, c_.dim, c_.moe_inter_dim) + d(c_.dim);
    const double layers = d(c_.n_all_layers()) * layer + d(c_.n_layers, c_.n_routed_experts) * expert +
                          d(c_.n_mtp_layers, c_.routed_experts(c_.n_layers)) * expert;
    double rest = d(2, c_.vocab_size, c_.dim);
    if (c_.n_mtp_layers > 0) {
      rest += d(2, c_.vocab_size, c_.dspark_markov_rank) + d(c_.dim, c_.dim, c_.dspark_target_layer_ids.size());
    }
    for (const std::int64_t rows : c_.engram_num_embeddings) {
      rest += d(rows, c_.engram_head_dim) + d(c_.hc_mult + 1, c_.dim, c_.engram_columns(), c_.engram_head_dim);
    }
    if (c_.vision_enabled()) {
      rest += d(c_.vision_n_layers, c_.vision_dim) * (d(4, c_.vision_dim) + d(3, c_.vision_inter_dim)) +
              d(3, c_.vision_patch_size, c_.vision_patch_size, c_.vision_dim) + d(c_.dim, c_.dim) +
              d(c_.vision_dim, c_.vision_downsample_ratio, c_.vision_downsample_ratio, c_.dim);
    }
    expect(layers + rest <= kMaxElements, "the number of weights", layers + rest, "at most {}", kMaxElements);
  }

  const ModelConfig& c_;
  std::string_view name_;
};

}  // namespace

void validate(const ModelConfig& config, std::string_view name) { Checker(config, name).check_all(); }

}  // namespace bathys::config
