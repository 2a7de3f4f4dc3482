// SPDX-License-Identifier: Apache-2.0
#include "apps/run_options.hpp"

#include "apps/commands.hpp"
#include "apps/validators.hpp"
#include "convert/synth.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process_memory.hpp"
#include "model/weight_packer.hpp"
#include "parallel/agree.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <algorithm>
#include <memory>
#include <utility>

namespace bathys::apps {
namespace {

constexpr double kMaxMemoryGib = 1 << 30;  // its bytes, 2^60, can still be added to others in 64 bits

}  // namespace

void add_run_options(CLI::App& app, RunOptions& options) {
  CLI::Option* const model = app.add_option("--model", options.model, "folder of shards (bathys convert)");
  app.add_option("--synthetic", options.synthetic,
                 "config of a model with synthetic weights, made in memory instead of --model (bathys synth)")
      ->excludes(model);
  app.add_option("--synthetic-seed", options.synthetic_seed, "of the weights of --synthetic")
      ->check(whole_number(0))
      ->capture_default_str();
  app.add_option("--layout", options.layout, "replicas=R,groups=G,tensor=T (default: one group of all ranks)");
  app.add_option("--row-budget", options.row_budget, "rows of one step at most")
      ->check(whole_number(1, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--memory", options.memory_gib,
                 "GiB of each rank that sequences may take together (default: what is left)")
      ->check(number(0, kMaxMemoryGib));
  add_switch(app, "--cone", options.cone,
             "skip rows of upper layers that nothing wanted depends on; changes no number");
  add_switch(app, "--prefix-sharing", options.prefix_sharing,
             "compute beginnings that requests share once; changes no number");
  app.add_option("--threads", options.session.threads, "threads of each rank (default: the cores it may use)")
      ->check(whole_number(1, kMaxThreads));
  app.add_option("--reductions", options.reductions,
                 "exact: the same bits on any number of ranks; fast: float32 sums over ranks")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  add_switch(app, "--checksums", options.checksums, "check every byte of the weights while loading");
  app.add_flag("--direct", options.direct, "every rank reads its own part of the weights (parallel file systems)");
  add_session_options(app, options.session);
}

eval::TaskContext OpenModel::tasks() const {
  eval::TaskContext context;
  context.tokenizer = &tokenizer;
  context.bos = static_cast<std::int32_t>(shards.config.bos_token_id);
  context.eos = static_cast<std::int32_t>(shards.config.eos_token_id);
  context.prefix_token = context.bos;
  return context;
}

namespace {

// The model that bathys synth would write, without a file.
weights::ShardModel synthesize(const RunOptions& options) {
  convert::SourceModel source = convert::synthesize(options.synthetic, {"", options.synthetic_seed});
  auto made = std::make_shared<const catalog::SyntheticModel>(std::move(*source.synthetic));
  return weights::open_synthetic(options.synthetic, std::move(source.index), std::move(made));
}

// One line about the loading, of all ranks.
void report_load(parallel::Session& session, const weights::ShardModel& shards, const weights::LoadReport& mine,
                 const model::Model& model, const ProcessMemory& before, const ProcessMemory& after) {
  weights::LoadOptions wanted;
  wanted.wanted = model::WeightPacker::wants;
  const weights::LoadSummary all = weights::summarize(session.world(), shards, mine, wanted, session.host());
  // What loading took on top of what it brought, on the rank where that is most.
  const std::int64_t over = session.world().all_reduce_host(
      std::max<std::int64_t>(after.peak_bytes - before.resident_bytes - model.weight_bytes() - model.workspace_bytes(),
                             0),
      parallel::Reduce::max);
  const auto gigabytes = static_cast<double>(shards.synthetic ? all.bytes_held : all.bytes_read) / 1e9;
  log::info("load",
            "seconds={:.2f} read_bytes={} read_amplification={:.2f} gb_per_s={:.2f} open_s={:.2f} read_s={:.2f} "
            "read_calls_s={:.2f} wait_s={:.2f} exchange_s={:.2f} repack_s={:.2f} slowest_rank={} slowest_host={} "
            "weight_bytes={} "
            "workspace_bytes={} rss_before_bytes={} rss_after_bytes={} rss_peak_bytes={} over_weights_bytes={}",
            all.most.total_s, all.bytes_read,
            static_cast<double>(all.bytes_read) / static_cast<double>(std::max<std::uint64_t>(all.model_bytes, 1)),
            gigabytes / all.most.total_s, all.most.open_s, all.most.read_s, all.most.read_calls_s, all.most.wait_s,
            all.most.exchange_s, all.most.sink_s, all.slowest_rank, all.slowest_host, model.weight_bytes(),
            model.workspace_bytes(), before.resident_bytes, after.resident_bytes, after.peak_bytes, over);
}

}  // namespace

OpenModel open_model(parallel::Session& session, const RunOptions& options) {
  parallel::Collectives& world = session.world();
  parallel::agree(world, [&] {
    require(options.reductions == "exact", ExitCode::usage,
            "--reductions fast is not available in this version; leave it out");
    require(!options.model.empty() || !options.synthetic.empty(), ExitCode::usage,
            "no model is named; give --model SHARD_DIR (bathys convert) or --synthetic CONFIG");
  });
  weights::ShardModel shards = options.synthetic.empty() ? weights::open_shards(world, options.model)
                                                         : parallel::agree(world, [&] { return synthesize(options); });
  const parallel::Layout layout = parallel::agree(world, [&] {
    return parallel::choose_layout(options.layout, world.size(), shards.config.o_groups,
                                   shards.config.n_routed_experts);
  });
  tokenizer::Tokenizer tokenizer = parallel::agree(world, [&] {
    return tokenizer::Tokenizer::from_json(shards.index.tokenizer_json, shards.folder + ": tokenizer.json",
                                           shards.config.vocab_size);
  });
  return {std::move(shards), std::move(tokenizer), layout};
}

// A decoding sequence is one row of a step: fewer alive could not fill it.
std::int64_t sequences_alive(const RunOptions& options) { return std::max<std::int64_t>(options.row_budget, 64); }

model::ModelOptions model_options(const RunOptions& options) {
  model::ModelOptions out;
  out.max_rows = options.row_budget;
  out.cone = options.cone;
  return out;
}

RunningModel start_model(parallel::Session& session, const OpenModel& open, const RunOptions& options,
                         const model::MemoryBudget& budget) {
  RunningModel running;
  running.grid = std::make_unique<parallel::RankGrid>(parallel::make_rank_grid(session.world(), open.layout));
  session.watchdog().progress("load weights");
  weights::LoadOptions load_options;
  load_options.checksums = options.checksums;
  load_options.direct = options.direct;
  if (open.shards.synthetic) load_options.read_ahead = std::clamp(session.threads(), 1, 8);
  load_options.progress = [&] {
    session.watchdog().progress("load weights");
    parallel::end_if_stop_requested("the weights to be loaded");  // the scheduler may not wait until they are
  };
  weights::LoadReport report;
  const ProcessMemory before = process_memory();
  running.model =
      model::load_model(open.shards, session.world(), *running.grid, model_options(options), load_options, &report);
  const ProcessMemory after = process_memory();
  report_load(session, open.shards, report, *running.model, before, after);
  engine::EngineOptions engine_options;
  engine_options.row_budget = options.row_budget;
  engine_options.prefix_sharing = options.prefix_sharing;
  engine_options.cache_bytes = budget.caches;
  engine_options.max_sequences = sequences_alive(options);
  running.engine = std::make_unique<engine::Engine>(*running.model, &open.tokenizer, engine_options);
  running.model->on_layer([&session, engine = running.engine.get()](int layer) {
    session.watchdog().progress(fmt::format("step {}, layer {}", engine->counters().steps, layer),
                                parallel::Pace::compute);
  });
  return running;
}

}  // namespace bathys::apps
