// SPDX-License-Identifier: Apache-2.0
#include "catalog/tensor_table.hpp"

#include <functional>
#include <numeric>
#include <utility>

#include <fmt/format.h>

namespace bathys::catalog {
namespace {

using config::ModelConfig;

constexpr std::int64_t kScaleGroup = 32;

// How a tensor is cut over ranks.
struct Cut {
  ShardRule rule = ShardRule::replicated;
  std::int64_t units = 1;
  bool equal_shares = false;
};

constexpr std::int64_t groups_of_32(std::int64_t n) { return (n + kScaleGroup - 1) / kScaleGroup; }

class TableBuilder {
 public:
  explicit TableBuilder(const ModelConfig& config) : c_(config) {}

  std::vector<TensorSpec> build() {
    if (c_.vision_enabled()) {
      add_vision();
      ++file_;
    }
    add_embedding();
    ++file_;
    for (int layer = 0; layer < c_.n_layers; ++layer, ++file_)
      add_layer(fmt::format("layers.{}", layer), Part::layer, layer);
    add_head();
    ++file_;
    for (int stage = 0; stage < c_.n_mtp_layers; ++stage, ++file_) add_draft_stage(stage);
    for (const int layer : c_.engram_layer_ids) {
      add_engram(layer);
      ++file_;
    }
    return std::move(table_);
  }

 private:
  void at(Part part, int layer = -1) {
    part_ = part;
    layer_ = layer;
  }

  TensorSpec& add(std::string name, std::vector<std::int64_t> shape, Dtype dtype, Cut cut = {}) {
    TensorSpec& spec = table_.emplace_back();
    spec.name = std::move(name);
    spec.shape = std::move(shape);
    spec.dtype = dtype;
    spec.part = part_;
    spec.layer = layer_;
    spec.expert = expert_;
    spec.file = file_;
    spec.rule = cut.rule;
    spec.units = cut.units;
    spec.equal_shares = cut.equal_shares;
    return spec;
  }

  // <module>.scale before <module>.weight, the weight's block noted with it.
  void add_scaled(const std::string& module, std::vector<std::int64_t> shape, Dtype dtype,
                  std::vector<std::int64_t> scale_shape, std::array<int, 2> block, Cut cut) {
    const std::string scale = module + ".scale";
    add(scale, std::move(scale_shape), Dtype::f8_e8m0, cut);
    TensorSpec& weight = add(module + ".weight", std::move(shape), dtype, cut);
    weight.scale = scale;
    weight.block = block;
  }

  void bf16(std::string name, std::vector<std::int64_t> shape, Cut cut = {}) {
    add(std::move(name), std::move(shape), Dtype::bf16, cut);
  }
  void f32(std::string name, std::vector<std::int64_t> shape, Cut cut = {}) {
    add(std::move(name), std::move(shape), Dtype::f32, cut);
  }

  // A linear of the model's own dtype: FP8 with a scale per 32 x 32 tile, or bf16.
  void linear(const std::string& module, std::int64_t n, std::int64_t k, Cut cut = {}) {
    if (c_.fp8) {
      add_scaled(module, {n, k}, Dtype::f8_e4m3, {groups_of_32(n), groups_of_32(k)}, {32, 32}, cut);
    } else {
      bf16(module + ".weight", {n, k}, cut);
    }
  }

  void expert_linear(const std::string& module, std::int64_t n, std::int64_t k, Cut cut) {
    if (c_.expert_fp4) {
      add_scaled(module, {n, k / 2}, Dtype::i8, {n, k / kScaleGroup}, {1, 32}, cut);
    } else {
      linear(module, n, k, cut);
    }
  }

  [[nodiscard]] Cut heads() const { return {ShardRule::rows, c_.n_heads, true}; }
  [[nodiscard]] Cut output_groups(ShardRule rule) const { return {rule, c_.o_groups, true}; }
  [[nodiscard]] Cut vocabulary() const { return {ShardRule::rows, c_.vocab_size, false}; }

  void add_embedding() {
    at(Part::global);
    bf16("embed.weight", {c_.vocab_size, c_.dim}, vocabulary());
    if (!c_.vision_enabled()) return;
    at(Part::vision);
    for (const char* name : {"image_start", "image_end", "image_newline"}) bf16(name, {c_.dim});
  }

  void add_head() {
    at(Part::global);
    bf16("norm.weight", {c_.dim});
    bf16("head.weight", {c_.vocab_size, c_.dim}, vocabulary());
  }

  // What a backbone layer and a draft stage have in common.  `layer` counts draft stages after the backbone.
  void add_layer(const std::string& prefix, Part part, int layer) {
    at(part, layer);
    bf16(prefix + ".attn_norm.weight", {c_.dim});
    add_hyper_connection(prefix + ".hc_attn");
    add_attention(prefix + ".attn", layer);
    bf16(prefix + ".ffn_norm.weight", {c_.dim});
    add_hyper_connection(prefix + ".hc_ffn");
    add_experts(prefix + ".ffn", layer);
  }

  void add_hyper_connection(const std::string& prefix) {
    const std::int64_t copies = c_.hc_mult;
    const std::int64_t mixes = (2 + copies) * copies;
    f32(prefix + "_fn", {mixes, copies * c_.dim});
    f32(prefix + "_base", {mixes});
    f32(prefix + "_scale", {3});
  }

  void add_attention(const std::string& prefix, int layer) {
    const std::int64_t width = std::int64_t{c_.n_heads} * c_.head_dim;
    const std::int64_t latent = std::int64_t{c_.o_groups} * c_.o_lora_rank;
    linear(prefix + ".wq_a", c_.q_lora_rank, c_.dim);
    bf16(prefix + ".q_norm.weight", {c_.q_lora_rank});
    linear(prefix + ".wq_b", width, c_.q_lora_rank, heads());
    linear(prefix + ".wkv", c_.head_dim, c_.dim);
    bf16(prefix + ".kv_norm.weight", {c_.head_dim});
    f32(prefix + ".attn_sink", {c_.n_heads}, heads());
    linear(prefix + ".wo_a", latent, width / c_.o_groups, output_groups(ShardRule::rows));
    linear(prefix + ".wo_b", c_.dim, latent, output_groups(ShardRule::columns));
    if (c_.is_kv_source(layer)) add_compressor(prefix, layer);
    if (c_.is_index_source(layer)) add_indexer(prefix);
  }

  void add_compressor(const std::string& prefix, int layer) {
    bf16(prefix + ".compressor.wkv.weight", {c_.head_dim, c_.dim});
    if (c_.ratio(layer) > 1) bf16(prefix + ".compressor.wgate.weight", {c_.head_dim, c_.dim});
    bf16(prefix + ".compressor.norm.weight", {c_.head_dim});
    bf16(prefix + ".indexer.wk.weight", {c_.index_head_dim, c_.head_dim});
    bf16(prefix + ".indexer.k_norm.weight", {c_.index_head_dim});
  }

  // Replicated, unlike in the reference: a sum of scores over head shards would change ties.
  void add_indexer(const std::string& prefix) {
    linear(prefix + ".indexer.wq_b", std::int64_t{c_.index_n_heads} * c_.index_head_dim, c_.q_lora_rank);
    bf16(prefix + ".indexer.weights_proj.weight", {c_.index_n_heads, c_.dim});
  }

  void add_experts(const std::string& prefix, int layer) {
    const int n_experts = c_.routed_experts(layer);
    bf16(prefix + ".gate.weight", {n_experts, c_.dim});
    f32(prefix + ".gate.bias", {n_experts});
    if (c_.vision_enabled()) f32(prefix + ".gate.bias_vl", {n_experts});
    const auto matrices = [&](const std::string& module, auto&& add_one) {
      add_one(module + ".w1", c_.moe_inter_dim, c_.dim);  // gate
      add_one(module + ".w3", c_.moe_inter_dim, c_.dim);  // up
      add_one(module + ".w2", c_.dim, c_.moe_inter_dim);  // down
    };
    matrices(prefix + ".shared_experts",
             [&](const std::string& module, std::int64_t n, std::int64_t k) { linear(module, n, k); });
    for (expert_ = 0; expert_ < n_experts; ++expert_) {
      matrices(fmt::format("{}.experts.{}", prefix, expert_),
               [&](const std::string& module, std::int64_t n, std::int64_t k) {
                 expert_linear(module, n, k, {ShardRule::experts, n_experts, false});
               });
    }
    expert_ = -1;
  }

  void add_engram(int layer) {
    at(Part::engram, layer);
    const std::string prefix = fmt::format("layers.{}.engram", layer);
    const std::int64_t rows = c_.engram_num_embeddings[static_cast<std::size_t>(c_.engram_index(layer))];
    const std::int64_t width = c_.engram_head_dim;
    add_scaled(prefix + ".embed", {rows, width}, Dtype::f8_e4m3, {rows, width / kScaleGroup}, {1, 32},
               {ShardRule::table_rows, rows, false});
    // One key for each copy of the residual stream, and one value.
    linear(prefix + ".wkv", std::int64_t{c_.hc_mult + 1} * c_.dim, c_.engram_columns() * width);
    bf16(prefix + ".q_weight", {c_.hc_mult, c_.dim});
    bf16(prefix + ".k_weight", {c_.hc_mult, c_.dim});
  }

  void add_draft_stage(int stage) {
    const std::string prefix = fmt::format("mtp.{}", stage);
    const int layer = c_.n_layers + stage;
    at(Part::draft, layer);
    if (stage == 0) {
      linear(prefix + ".main_proj", c_.dim, static_cast<std::int64_t>(c_.dspark_target_layer_ids.size()) * c_.dim);
      bf16(prefix + ".main_norm.weight", {c_.dim});
    }
    add_layer(prefix, Part::draft, layer);
    if (stage != c_.n_mtp_layers - 1) return;
    bf16(prefix + ".norm.weight", {c_.dim});
    bf16(prefix + ".markov_head.embed.weight", {c_.vocab_size, c_.dspark_markov_rank}, vocabulary());
    bf16(prefix + ".markov_head.head.weight", {c_.vocab_size, c_.dspark_markov_rank}, vocabulary());
    bf16(prefix + ".confidence_head.proj.weight", {1, std::int64_t{c_.dim} + c_.dspark_markov_rank});
  }

  void add_vision() {
    at(Part::vision);
    const std::int64_t width = c_.vision_dim;
    const std::int64_t patch = std::int64_t{3} * c_.vision_patch_size * c_.vision_patch_size;  // RGB
    const std::int64_t cell = width * c_.vision_downsample_ratio * c_.vision_downsample_ratio;
    const auto with_bias = [&](const std::string& module, std::int64_t n, std::int64_t k) {
      bf16(module + ".weight", {n, k});
      bf16(module + ".bias", {n});
    };
    with_bias("vision.patch_embed.proj", width, patch);
    for (int block = 0; block < c_.vision_n_layers; ++block) {
      const std::string prefix = fmt::format("vision.blocks.{}", block);
      bf16(prefix + ".norm1.weight", {width});
      with_bias(prefix + ".attn.wqkv", 3 * width, width);
      with_bias(prefix + ".attn.wo", width, width);
      bf16(prefix + ".norm2.weight", {width});
      bf16(prefix + ".mlp.w1.weight", {std::int64_t{2} * c_.vision_inter_dim, width});  // gate half, then up half
      bf16(prefix + ".mlp.w2.weight", {width, c_.vision_inter_dim});
    }
    bf16("vision.norm.weight", {width});
    with_bias("aligner.w1", c_.dim, cell);
    with_bias("aligner.w2", c_.dim, c_.dim);
  }

  const ModelConfig& c_;
  std::vector<TensorSpec> table_;
  Part part_ = Part::global;
  int layer_ = -1;
  int expert_ = -1;
  int file_ = 0;
};

}  // namespace

int element_bytes(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
    case Dtype::f8_e4m3:
    case Dtype::f8_e8m0:
      return 1;
    case Dtype::bf16:
      return 2;
    case Dtype::f32:
      break;
  }
  return 4;
}

std::string_view safetensors_dtype(Dtype dtype) {
  switch (dtype) {
    case Dtype::i8:
      return "I8";
    case Dtype::f8_e4m3:
      return "F8_E4M3";
    case Dtype::f8_e8m0:
      return "F8_E8M0";
    case Dtype::bf16:
      return "BF16";
    case Dtype::f32:
      break;
  }
  return "F32";
}

std::optional<Dtype> dtype_from_safetensors(std::string_view name) {
  for (const auto dtype : {Dtype::i8, Dtype::f8_e4m3, Dtype::f8_e8m0, Dtype::bf16, Dtype::f32}) {
    if (name == safetensors_dtype(dtype)) return dtype;
  }
  return std::nullopt;
}

std::string_view part_name(Part part) {
  switch (part) {
    case Part::global:
      return "global";
    case Part::layer:
      return "layer";
    case Part::engram:
      return "engram";
    case Part::draft:
      return "draft";
    case Part::vision:
      break;
  }
  return "vision";
}

std::string_view shard_rule_name(ShardRule rule) {
  switch (rule) {
    case ShardRule::replicated:
      return "replicated";
    case ShardRule::rows:
      return "rows";
    case ShardRule::columns:
      return "columns";
    case ShardRule::experts:
      return "experts";
    case ShardRule::table_rows:
      break;
  }
  return "table_rows";
}

std::int64_t TensorSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
}

std::int64_t TensorSpec::bytes() const { return elements() * element_bytes(dtype); }

std::vector<std::int64_t> TensorSpec::logical_shape() const {
  std::vector<std::int64_t> logical = shape;
  if (dtype == Dtype::i8) logical.back() *= 2;
  return logical;
}

std::vector<TensorSpec> tensor_table(const ModelConfig& config) { return TableBuilder(config).build(); }

int released_file_count(const ModelConfig& config) {
  return (config.vision_enabled() ? 1 : 0) + 1 + config.n_layers + 1 + config.n_mtp_layers +
         static_cast<int>(config.engram_layer_ids.size());
}

std::string released_file_name(int file, int count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", file + 1, count);
}

}  // namespace bathys::catalog
