// SPDX-License-Identifier: Apache-2.0
#include "model/model.hpp"

#include "kernels/embedding.hpp"
#include "kernels/experts.hpp"
#include "kernels/norm_rope.hpp"
#include "model/model_state.hpp"

#include <limits>
#include <utility>

namespace bathys::model {
namespace {

using kernels::first_rows;

constexpr std::int32_t kNoLayer = std::numeric_limits<std::int32_t>::max();

kernels::Vec<const float> frequencies(const config::ModelConfig& c, bool compressed) {
  kernels::RopeSettings settings{.rope_dim = c.rope_head_dim,
                                 .theta = compressed ? c.compress_rope_theta : c.rope_theta};
  if (compressed) {
    settings.original_seq_len = c.original_seq_len;
    settings.factor = c.rope_factor;
    settings.beta_fast = c.beta_fast;
    settings.beta_slow = c.beta_slow;
  }
  return to_device("rope_freqs", kernels::rope_frequencies(settings));
}

Mat<const bf16> subset(const Exec& exec, const Mat<bf16>& x, const kernels::Vec<const std::int32_t>& rows,
                       std::int64_t n, const Mat<bf16>& into) {
  if (static_cast<std::int64_t>(x.extent(0)) == n) return x;
  const Mat<bf16> out = first_rows(into, n);
  kernels::gather_rows(exec, x, rows, out);
  return out;
}

}  // namespace

Model::State::State(const config::ModelConfig& config_in, ModelWeights weights_in, const parallel::RankGrid& grid_in,
                    const ModelOptions& options_in)
    : config(config_in),
      weights(std::move(weights_in)),
      grid(grid_in),
      options(options_in),
      caches(config),
      plan(config, caches.layout(), options.max_rows, options.cone),
      groups(*grid.peers, config.n_layers),
      work(config, local_sizes(config, grid.layout, grid.replica->rank()), options.max_rows, options.head_rows),
      window_freqs(frequencies(config, false)),
      compressed_freqs(frequencies(config, true)),
      counters(static_cast<std::size_t>(config.n_layers)) {
  for (const std::int64_t rows : grid.tensor->all_gather_host(weights.head.n))
    vocab_bytes.push_back(rows * static_cast<std::int64_t>(sizeof(float)));
}

Model::Model(const config::ModelConfig& config, ModelWeights weights, const parallel::RankGrid& grid,
             const ModelOptions& options)
    : state_(std::make_unique<State>(config, std::move(weights), grid, options)) {}
Model::~Model() = default;

const config::ModelConfig& Model::config() const { return state_->config; }
const ModelOptions& Model::options() const { return state_->options; }
CacheArena& Model::caches() { return state_->caches; }
Sequence Model::fork(const Sequence& from) { return state_->caches.fork(state_->exec, from); }
std::int64_t Model::wanted() const { return state_->plan.wanted(); }
void Model::observe(Observer* observer) { state_->observer = observer; }
void Model::on_layer(std::function<void(int layer)> begins) { state_->layer_begins = std::move(begins); }
const std::vector<LayerCounters>& Model::counters() const { return state_->counters; }
std::int64_t Model::weight_bytes() const { return state_->weights.packed_bytes; }
std::int64_t Model::workspace_bytes() const { return state_->work.bytes(); }

std::vector<RowFailure> Model::run(const Step& step) {
  State& s = *state_;
  for (const SequenceChunk& chunk : step.chunks) {
    s.caches.reserve(*chunk.sequence, chunk.sequence->length() + static_cast<std::int64_t>(chunk.tokens.size()));
  }
  s.plan.build(s.exec, step, s.weights.token_map);
  s.groups.share(s.plan);
  if (s.groups.stream(0).total == 0) return {};
#ifdef BATHYS_POISON
  s.work.poison(s.exec);
#endif
  const StepContext c{s.exec, s.config, s.caches.layout(),  s.plan,    s.groups,
                      s.work, s.grid,   s.compressed_freqs, s.observer};
  Stream stream = s.start(c);
  for (int layer = 0; layer < s.config.n_layers && s.groups.stream(layer).total > 0; ++layer) {
    if (s.layer_begins) s.layer_begins(layer);
    stream = s.run_layer(c, layer, stream);
  }
  s.finish(c, stream);
  s.plan.commit(step, s.weights.token_map);
  return s.failures(step);
}

// Embedding, position angles, and the stream of M equal copies.
Stream Model::State::start(const StepContext& c) {
  const std::int64_t n = plan.rows();
  Stream stream{first_rows(c.work.h[0], n), first_rows(c.work.pre[0], n)};
  if (n == 0) return stream;
  const Mat<bf16> x = first_rows(work.x, n);
  kernels::embed(exec, plan.tokens(), weights.embed, weights.first_vocab, x);
  grid.tensor->all_reduce_or(exec, x.data(), static_cast<std::int64_t>(x.size() * sizeof(bf16)));
  if (observer != nullptr) observer->tensor("embed", -1, Mat<const bf16>(x));
  kernels::rope_table(exec, plan.step_rows().position, window_freqs, first_rows(work.rope_window, n));
  kernels::rope_table(exec, plan.step_rows().position, compressed_freqs, first_rows(work.rope_compressed, n));
  Kokkos::deep_copy(exec, first_rows(work.bad_layer, n), kNoLayer);
  kernels::start_stream(exec, x, stream.h, stream.pre);
  return stream;
}

Stream Model::State::run_layer(const StepContext& c, int layer, const Stream& entering) {
  const LayerWeights& w = weights.layers[static_cast<std::size_t>(layer)];
  const LayerRows& rows = plan.layer(layer);
  const auto eps = static_cast<float>(config.norm_eps);
  const auto hc_eps = static_cast<float>(config.hc_eps);
  auto show = [&](const char* name, const auto& value) {
    if (observer != nullptr) observer->tensor(name, layer, value);
  };
  // Without rows of its own a group still does its part of what all groups share.
  const auto join_experts = [&](const Stream& stream) {
    const Mat<bf16> none = first_rows(work.x, 0);
    if (groups.full(layer).total > 0) expert_layer(c, layer, w.experts, none, none);
    return stream;
  };
  if (rows.active == 0) {
    if (w.engram) engram_layer(c, layer, *w.engram, entering);
    return join_experts(entering);
  }
  if (observer != nullptr) observer->layer_input(layer, entering.h, entering.pre);
  if (w.engram) engram_layer(c, layer, *w.engram, entering);
  show("h_in", Mat<const bf16>(entering.h));
  show("pre_in", Mat<const float>(entering.pre));

  const Mat<bf16> x_active = first_rows(work.x, rows.active);
  kernels::hc_pre(exec, entering.h, entering.pre, x_active);
  kernels::rms_norm(exec, x_active, w.attn_norm, eps, x_active);
  show("attn_in", Mat<const bf16>(x_active));
  LayerCounters& count = counters[static_cast<std::size_t>(layer)];
  if (w.compressor) {
    compressor_layer(c, layer, *w.compressor, x_active);
    count.source_rows += rows.active;
  }
  if (rows.window > 0)
    window_kv(c, layer, w.attention, subset(exec, x_active, rows.window_of_active, rows.window, work.x_part));
  count.window_rows += rows.window;
  count.full_rows += rows.full;

  // From here on only the full rows.
  Stream stream = entering;
  if (rows.full < rows.active) {
    const int other = entering.h.data() == work.h[0].data() ? 1 : 0;
    stream.h = first_rows(work.h[other], rows.full);
    stream.pre = first_rows(work.pre[other], rows.full);
    kernels::gather_rows(exec, entering.h, rows.full_of_active, stream.h);
    kernels::gather_rows(exec, entering.pre, rows.full_of_active, stream.pre);
  }
  const Mat<bf16> y = first_rows(work.y, rows.full);
  if (rows.full > 0) {
    const kernels::HyperConnectionMix mix{first_rows(work.attn_mix.pre, rows.full),
                                          first_rows(work.attn_mix.post, rows.full),
                                          first_rows(work.attn_mix.comb, rows.full)};
    kernels::hc_mixes(exec, stream.h, w.hc_attn, config.hc_mult, config.hc_sinkhorn_iters, hc_eps, eps, mix);
    show("hc_attn_pre", Mat<const float>(mix.pre));
    show("hc_attn_post", Mat<const float>(mix.post));
    show("hc_attn_comb", Mat<const float>(mix.comb));
    attention_layer(c, layer, w, subset(exec, x_active, rows.full_of_active, rows.full, work.x_part), y);
    show("attn_out", Mat<const bf16>(y));
    kernels::hc_post(exec, y, mix.post, mix.comb, stream.h);
  }
  kernels::commit_window(exec, plan.sequences(), plan.step_rows(), first_rows(work.window, plan.rows()),
                         rows.window_valid, caches.layout().ring_offset(layer), config.window_size);
  if (rows.full == 0) return join_experts(stream);

  const kernels::HyperConnectionMix mix{first_rows(work.ffn_mix.pre, rows.full),
                                        first_rows(work.ffn_mix.post, rows.full),
                                        first_rows(work.ffn_mix.comb, rows.full)};
  kernels::hc_mixes(exec, stream.h, w.hc_ffn, config.hc_mult, config.hc_sinkhorn_iters, hc_eps, eps, mix);
  show("hc_ffn_pre", Mat<const float>(mix.pre));
  show("hc_ffn_post", Mat<const float>(mix.post));
  show("hc_ffn_comb", Mat<const float>(mix.comb));
  const Mat<bf16> x = first_rows(work.x, rows.full);
  kernels::hc_pre(exec, stream.h, first_rows(work.attn_mix.pre, rows.full), x);
  kernels::rms_norm(exec, x, w.ffn_norm, eps, x);
  show("moe_in", Mat<const bf16>(x));
  expert_layer(c, layer, w.experts, x, y);
  show("moe_out", Mat<const bf16>(y));
  kernels::hc_post(exec, y, mix.post, mix.comb, stream.h);
  show("h_out", Mat<const bf16>(stream.h));
  show("pre_out", Mat<const float>(mix.pre));
  // The next layer collapses its input with this layer's last mix; it is read before it is written again.
  stream.pre = mix.pre;
  return stream;
}

// Collapses and norms the wanted rows.
void Model::State::finish(const StepContext& c, const Stream& stream) {
  const std::int64_t n = plan.wanted();
  if (n == 0) return;
  Stream wanted = stream;
  if (n < static_cast<std::int64_t>(stream.h.extent(0))) {
    const int other = stream.h.data() == work.h[0].data() ? 1 : 0;
    wanted.h = first_rows(work.h[other], n);
    wanted.pre = first_rows(work.pre[other], n);
    kernels::gather_rows(exec, stream.h, plan.wanted_of_full(), wanted.h);
    kernels::gather_rows(exec, stream.pre, plan.wanted_of_full(), wanted.pre);
  }
  const Mat<bf16> x = first_rows(work.wanted, n);
  kernels::hc_pre(exec, wanted.h, wanted.pre, x);
  kernels::rms_norm(exec, x, weights.norm, static_cast<float>(config.norm_eps), x);
  if (c.observer != nullptr) c.observer->tensor("final_normed", config.n_layers, Mat<const bf16>(x));
}

std::vector<RowFailure> Model::State::failures(const Step& step) {
  if (plan.rows() == 0) return {};
  grid.replica->wait(exec);
  const std::vector<std::int32_t> bad = to_host(first_rows(work.bad_layer, plan.rows()));
  std::vector<RowFailure> out;
  std::size_t row = 0;
  for (std::size_t b = 0; b < step.chunks.size(); ++b) {
    const std::size_t n = step.chunks[b].tokens.size();
    for (std::size_t i = 0; i < n; ++i) {
      if (bad[row + i] == kNoLayer) continue;
      // With the cone off a row may go wrong where nothing wanted sees it; with it on it would not have been run.
      if (step.chunks[b].reach[i] > cone_full_limit(config, bad[row + i])) continue;
      const std::int64_t start = step.chunks[b].sequence->length() - static_cast<std::int64_t>(n);
      out.push_back({static_cast<int>(b), bad[row + i], start + static_cast<std::int64_t>(i)});
      break;
    }
    row += n;
  }
  return out;
}

}  // namespace bathys::model
