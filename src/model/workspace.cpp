// SPDX-License-Identifier: Apache-2.0
#include "model/workspace.hpp"

#include "catalog/shard_range.hpp"
#include "kernels/cache.hpp"

#include <algorithm>
#include <string>

namespace bathys::model {
namespace {

// Scores of one pass of the indexer: as many rows as fit, one at least.
constexpr std::int64_t kScoreFloats = std::int64_t{1} << 20;

template <class T>
Mat<T> matrix(const char* label, std::int64_t rows, std::int64_t columns) {
  return Mat<T>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), static_cast<std::size_t>(rows),
                static_cast<std::size_t>(columns));
}
template <class T>
Vec<T> vector(const char* label, std::int64_t n) {
  return Vec<T>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), static_cast<std::size_t>(n));
}

// Calls f with every plain buffer.
template <class W, class F>
void each_buffer(W& w, F&& f) {
  for (auto& v : w.h) f(v);
  for (auto& v : w.pre) f(v);
  for (auto* mix : {&w.attn_mix, &w.ffn_mix}) {
    f(mix->pre);
    f(mix->post);
    f(mix->comb);
  }
  f(w.x), f(w.x_part), f(w.y), f(w.sums), f(w.kv), f(w.window), f(w.qr), f(w.q), f(w.o), f(w.grouped), f(w.grain);
  f(w.rope_window), f(w.rope_compressed), f(w.rope_groups), f(w.pool_kv), f(w.pool_gate), f(w.latent), f(w.key),
      f(w.index_q), f(w.index_w);
  f(w.scores), f(w.chosen), f(w.blocks), f(w.logits), f(w.expert_ids), f(w.expert_weights), f(w.offsets), f(w.row_of),
      f(w.weight_of);
  f(w.assignment), f(w.gate), f(w.up), f(w.down), f(w.shared), f(w.row_ids), f(w.rows), f(w.all_x), f(w.all_ids),
      f(w.all_weights), f(w.engram_kv), f(w.engram_gate), f(w.wanted), f(w.head_rows);
  f(w.head_logits);
  for (auto* a : {&w.q8, &w.plain, &w.inner_q8, &w.inner_plain}) {
    f(a->values), f(a->scales), f(a->hi), f(a->lo), f(a->parts), f(a->sums), f(a->rests);
  }
  f(w.bad_layer);
}

}  // namespace

LocalSizes local_sizes(const config::ModelConfig& config, const parallel::Layout& layout, int replica_rank) {
  const int ranks = layout.groups * layout.tensor;
  const auto of_tensor = [&](std::int64_t total) {
    return catalog::shard_range(total, layout.tensor, replica_rank % layout.tensor).size();
  };
  return {static_cast<int>(of_tensor(config.n_heads)), static_cast<int>(of_tensor(config.o_groups)),
          static_cast<int>(catalog::shard_range(config.n_routed_experts, ranks, replica_rank).size()),
          of_tensor(config.vocab_size), layout.groups};
}

Workspace::Workspace(const config::ModelConfig& c, const LocalSizes& local, std::int64_t t, std::int64_t n_head_rows) {
  const std::int64_t dim = c.dim, copies = c.hc_mult, k = c.n_activated_experts, inter = c.moe_inter_dim;
  const std::int64_t all = t * local.peers, gathered = local.peers > 1 ? all : 0;
  for (auto& v : h) v = matrix<bf16>("h", t, copies * dim);
  for (auto& v : pre) v = matrix<float>("pre", t, copies);
  for (auto* mix : {&attn_mix, &ffn_mix}) {
    *mix = {matrix<float>("mix_pre", t, copies), matrix<float>("mix_post", t, copies),
            matrix<float>("mix_comb", t, copies * copies)};
  }
  x = matrix<bf16>("x", t, dim);
  x_part = matrix<bf16>("x_part", t, dim);
  y = matrix<bf16>("y", t, dim);
  const std::int64_t group_in = std::int64_t{c.n_heads / c.o_groups} * c.head_dim;
  const std::int64_t engram_in = std::int64_t{c.engram_columns()} * c.engram_head_dim;
  q8 = kernels::Activation(all, std::max<std::int64_t>({dim, c.q_lora_rank, c.o_lora_rank, engram_in}), true);
  plain = kernels::Activation(
      std::max(all, n_head_rows),
      std::max<std::int64_t>({dim, c.q_lora_rank, c.o_lora_rank, engram_in, group_in, c.head_dim}), false);
  sums = matrix<std::int64_t>("sums", all, dim + 1);
  bad_layer = vector<std::int32_t>("bad_layer", t);

  kv = matrix<bf16>("kv", t, c.head_dim);
  window = matrix<std::uint8_t>("window", t, kernels::window_record_bytes(c.head_dim));
  qr = matrix<bf16>("qr", t, c.q_lora_rank);
  q = matrix<bf16>("q", t, std::int64_t{local.heads} * c.head_dim);
  o = matrix<bf16>("o", t, std::int64_t{local.heads} * c.head_dim);
  grouped = matrix<bf16>("grouped", t, std::int64_t{local.groups} * c.o_lora_rank);
  grain = matrix<float>("grain", t, dim);
  for (auto* table : {&rope_window, &rope_compressed, &rope_groups}) {
    *table = kernels::Cube<float>(Kokkos::view_alloc(std::string("rope"), Kokkos::WithoutInitializing),
                                  static_cast<std::size_t>(t), static_cast<std::size_t>(c.rope_head_dim / 2),
                                  std::size_t{2});
  }
  pool_kv = matrix<float>("pool_kv", t, c.head_dim);
  pool_gate = matrix<float>("pool_gate", t, c.head_dim);
  latent = matrix<bf16>("latent", t, c.head_dim);
  key = matrix<bf16>("key", t, c.index_head_dim);
  index_q = matrix<bf16>("index_q", t, std::int64_t{c.index_n_heads} * c.index_head_dim);
  index_w = matrix<bf16>("index_w", t, c.index_n_heads);
  scores = vector<float>("scores", kScoreFloats);
  chosen = matrix<std::int32_t>("chosen", t, c.index_topk);
  blocks = matrix<std::int32_t>("blocks", t, c.candidate_source_layer >= 0 ? c.candidate_topk_blocks : 0);

  logits = matrix<float>("gate_logits", t, c.n_routed_experts);
  expert_ids = matrix<std::int32_t>("expert_ids", t, k);
  expert_weights = matrix<float>("expert_weights", t, k);
  offsets = vector<std::int32_t>("expert_offsets", local.experts + 1);
  all_x = matrix<bf16>("expert_all_x", gathered, dim);
  all_ids = matrix<std::int32_t>("expert_all_ids", gathered, k);
  all_weights = matrix<float>("expert_all_weights", gathered, k);
  row_of = vector<std::int32_t>("expert_row_of", all * k);
  weight_of = vector<float>("expert_weight_of", all * k);
  assignment = matrix<std::int32_t>("expert_assignment", all, k);
  gate = matrix<bf16>("expert_gate", all * k, inter);
  up = matrix<bf16>("expert_up", all * k, inter);
  down = matrix<bf16>("expert_down", all * k, dim);
  inner_q8 = kernels::Activation(all * k, inter, true);
  inner_plain = kernels::Activation(all * k, inter, false);
  shared = matrix<bf16>("shared", t, dim);

  row_ids = matrix<std::int64_t>("engram_row_ids", c.engram_enabled() ? gathered : 0, c.engram_columns());
  rows = matrix<bf16>("engram_rows", c.engram_enabled() ? all : 0, engram_in);
  engram_kv = matrix<bf16>("engram_kv", c.engram_enabled() ? t : 0, (copies + 1) * dim);
  engram_gate = matrix<float>("engram_gate", c.engram_enabled() ? t : 0, copies);

  wanted = matrix<bf16>("wanted", t, dim);
  head_rows = matrix<bf16>("head_rows", n_head_rows, dim);
  head_logits = matrix<float>("head_logits", n_head_rows, local.vocab);
}

void Workspace::poison(const Exec& exec) const {
  each_buffer(*this, [&](const auto& view) {
    const std::size_t bytes = view.span() * sizeof(*view.data());
    Kokkos::deep_copy(exec, UnmanagedView<std::uint8_t*>(reinterpret_cast<std::uint8_t*>(view.data()), bytes),
                      std::uint8_t{0xff});
  });
}

std::int64_t Workspace::bytes() const {
  std::int64_t total = 0;
  each_buffer(*this, [&](const auto& view) { total += static_cast<std::int64_t>(view.span() * sizeof(*view.data())); });
  return total;
}

// Every buffer is linear in the step's rows once those are no fewer than the head's: two small workspaces tell the size
// of a large one, and no second list of buffers has to agree with the first.
std::int64_t Workspace::bytes_for(const config::ModelConfig& c, const LocalSizes& local, std::int64_t t,
                                  std::int64_t n_head_rows) {
  if (t <= n_head_rows) return Workspace(c, local, t, n_head_rows).bytes();
  const std::int64_t least = Workspace(c, local, n_head_rows, n_head_rows).bytes();
  const std::int64_t row = Workspace(c, local, n_head_rows + 1, n_head_rows).bytes() - least;
  return least + (t - n_head_rows) * row;
}

}  // namespace bathys::model
