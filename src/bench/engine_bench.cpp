// SPDX-License-Identifier: Apache-2.0
#include "bench/engine_bench.hpp"

#include "bench/kernel_clock.hpp"
#include "core/timer.hpp"
#include "engine/engine.hpp"
#include "numerics/philox.hpp"

#include <algorithm>
#include <ostream>
#include <vector>

#include <fmt/format.h>

namespace bathys::bench {
namespace {

constexpr int kChoices = 4;
constexpr std::int64_t kChoiceTokens = 8;
constexpr std::size_t kLabelsShown = 8;

std::vector<std::int32_t> random_tokens(std::int64_t n, std::int64_t vocab, std::uint32_t seed) {
  std::vector<std::int32_t> tokens;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto word = numerics::philox4x32({{static_cast<std::uint32_t>(i), 0, 0, 0}}, seed, 0).word[0];
    tokens.push_back(static_cast<std::int32_t>(word % static_cast<std::uint64_t>(vocab)));
  }
  return tokens;
}

// Tokens that a user counts: of contexts once, of choices and of answers.
std::int64_t submit_all(engine::Engine& engine, const EngineBenchOptions& options, std::int64_t vocab) {
  std::int64_t tokens = 0;
  for (std::int64_t r = 0; r < options.requests; ++r) {
    // Lengths from half of the usual one to one and a half.
    const std::int64_t length = std::max<std::int64_t>(2, options.context / 2 + options.context * (r % 8) / 8);
    const auto seed = static_cast<std::uint32_t>(r * (kChoices + 1));
    const auto context = random_tokens(length, vocab, seed);
    tokens += length;
    if (r % 2 == 0) {
      engine::ScoreJob job{.tag = r, .sequences = {}};
      for (std::uint32_t c = 1; c <= kChoices; ++c) {
        auto sequence = context;
        for (const std::int32_t token : random_tokens(kChoiceTokens, vocab, seed + c)) sequence.push_back(token);
        job.sequences.push_back({std::move(sequence), length});
        tokens += kChoiceTokens;
      }
      engine.submit(std::move(job));
    } else {
      engine::GenerateJob job;
      job.tag = r;
      job.prompt = context;
      job.max_new_tokens = options.generated;
      engine.submit(std::move(job));
    }
  }
  return tokens;
}

struct Measured {
  double seconds = 1e30, kernel_seconds = 0, tokens_per_s = 0;
  std::int64_t steps = 0;
  std::vector<std::pair<std::string, double>> labels;
};

void measure(model::Model& model, const engine::EngineOptions& engine_options, const EngineBenchOptions& options,
             Measured& best) {
  engine::Engine engine(model, nullptr, engine_options);
  const std::int64_t given = submit_all(engine, options, model.config().vocab_size);
  KernelClock kernels;
  const Timer timer;
  while (engine.step()) engine.take_finished();
  const double seconds = timer.seconds();
  if (seconds >= best.seconds) return;
  const auto tokens = static_cast<double>(given + engine.counters().generated_tokens);
  best = {seconds, kernels.seconds(), tokens / seconds, engine.counters().steps, kernels.by_label()};
}

struct Context {
  double seconds = 1e30;
  std::int64_t full_rows = 0;  // through attention and experts, of all layers
};

// One long context; `all`: every row is wanted, so that no layer skips one.
void measure_context(model::Model& model, std::int64_t n, bool all, Context& best) {
  const auto full_rows = [&] {
    std::int64_t rows = 0;
    for (const model::LayerCounters& layer : model.counters()) rows += layer.full_rows;
    return rows;
  };
  const std::vector<std::int32_t> tokens = random_tokens(n, model.config().vocab_size, 0);
  const std::int64_t before = full_rows();
  model::Sequence sequence = model.caches().make();
  const Timer timer;
  while (sequence.length() < n) {
    model::SequenceChunk chunk{&sequence, {}, {}, {}};
    const std::int64_t end = std::min(n, sequence.length() + model.options().max_rows);
    for (std::int64_t p = sequence.length(); p < end; ++p) {
      chunk.tokens.push_back(tokens[static_cast<std::size_t>(p)]);
      chunk.reach.push_back(all ? 0 : n - 1 - p);
    }
    model::Step step;
    step.chunks.push_back(std::move(chunk));
    model.run(step);
  }
  best = {std::min(best.seconds, timer.seconds()), full_rows() - before};
}

}  // namespace

void bench_engine(const EngineBenchOptions& options, model::Model& model, std::ostream& out) {
  const engine::EngineOptions batched{.row_budget = model.options().max_rows};
  const engine::EngineOptions alone{
      .row_budget = model.options().max_rows, .max_sequences = 1, .prefix_sharing = false};
  Measured many, one;
  Context last_row, all_rows;
  const std::int64_t n = std::min(options.cone, model.config().max_position_embeddings);
  for (int repeat = 0; repeat < options.repeats; ++repeat) {
    measure(model, batched, options, many);
    measure(model, alone, options, one);
    if (n == 0) continue;
    measure_context(model, n, false, last_row);
    measure_context(model, n, true, all_rows);
  }
  out << "engine        steps  seconds  tokens/s  in kernels  elsewhere\n";
  for (const auto& [name, m] : {std::pair<const char*, const Measured&>{"batched", many}, {"one at a time", one}}) {
    out << fmt::format("{:13} {:5}  {:7.3f}  {:8.1f}  {:9.1f}%  {:8.1f}%\n", name, m.steps, m.seconds, m.tokens_per_s,
                       100 * m.kernel_seconds / m.seconds, 100 * (1 - m.kernel_seconds / m.seconds));
  }
  out << fmt::format("batched / one at a time: {:.2f}\n", many.tokens_per_s / one.tokens_per_s);
  out << "where the batched run's time goes:\n";
  for (std::size_t i = 0; i < std::min(kLabelsShown, many.labels.size()); ++i)
    out << fmt::format("  {:28} {:5.1f}%\n", many.labels[i].first, 100 * many.labels[i].second / many.seconds);
  if (n == 0) return;
  out << fmt::format("the last of {} rows, by the cone: {:.3f} s and {} rows of layers; all rows: {:.3f} s and {}\n", n,
                     last_row.seconds, last_row.full_rows, all_rows.seconds, all_rows.full_rows)
      << fmt::format("all rows / the cone: {:.2f} in time, {:.2f} in rows\n", all_rows.seconds / last_row.seconds,
                     static_cast<double>(all_rows.full_rows) / static_cast<double>(last_row.full_rows));
}

}  // namespace bathys::bench
