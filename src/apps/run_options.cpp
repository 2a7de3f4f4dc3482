// SPDX-License-Identifier: Apache-2.0
#include "apps/run_options.hpp"

#include "apps/commands.hpp"
#include "core/error.hpp"
#include "core/log.hpp"
#include "core/process_memory.hpp"
#include "parallel/agree.hpp"
#include "parallel/watchdog.hpp"

#include <charconv>
#include <cmath>
#include <system_error>

namespace bathys::apps {

CLI::Validator whole_seed() {
  return {[](std::string& text) {
            std::int64_t value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good = error == std::errc() && end == text.data() + text.size() && value >= 0;
            return good ? std::string() : "is " + text + ", a whole number from 0 to 9223372036854775807 is wanted";
          },
          "SEED"};
}

CLI::Validator finite_positive() {
  return {[](std::string& text) {
            double value = 0;
            const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
            const bool good =
                error == std::errc() && end == text.data() + text.size() && std::isfinite(value) && value >= 0;
            return good ? std::string() : "is " + text + ", a number from 0 on is wanted";
          },
          "NUMBER"};
}

void add_run_options(CLI::App& app, RunOptions& options) {
  app.add_option("--model", options.model, "folder of shards (bathys convert)")->required();
  app.add_option("--layout", options.layout, "replicas=R,groups=G,tensor=T (default: one group of all ranks)");
  app.add_option("--row-budget", options.row_budget, "rows of one step at most")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24))
      ->capture_default_str();
  app.add_option("--memory", options.memory_gib,
                 "GiB of each rank that sequences may take together (default: no bound)")
      ->check(finite_positive());
  add_switch(app, "--cone", options.cone,
             "skip rows of upper layers that nothing wanted depends on; changes no number");
  add_switch(app, "--prefix-sharing", options.prefix_sharing,
             "compute a common beginning of continuations once; changes no number");
  app.add_option("--threads", options.session.threads, "threads of each rank (default: the cores it may use)")
      ->check(CLI::PositiveNumber);
  app.add_option("--reductions", options.reductions,
                 "exact: the same bits on any number of ranks; fast: float32 sums over ranks")
      ->check(CLI::IsMember({"exact", "fast"}))
      ->capture_default_str();
  add_switch(app, "--checksums", options.checksums, "check every byte of the weights while loading");
  app.add_flag("--direct", options.direct, "every rank reads its own part of the weights (parallel file systems)");
  app.add_flag("--single-process", options.session.single_process,
               "one process is meant, although the Slurm step has more tasks");
  app.add_option("--watchdog-seconds", options.session.watchdog_s,
                 "end a job in which nothing moves for so long; 0: never")
      ->check(finite_positive())
      ->capture_default_str();
}

eval::TaskContext OpenModel::tasks() const {
  eval::TaskContext context;
  context.tokenizer = &tokenizer;
  context.bos = static_cast<std::int32_t>(shards.config.bos_token_id);
  context.eos = static_cast<std::int32_t>(shards.config.eos_token_id);
  context.prefix_token = context.bos;
  return context;
}

OpenModel open_model(parallel::Session& session, const RunOptions& options) {
  parallel::Collectives& world = session.world();
  parallel::agree(world, [&] {
    require(options.reductions == "exact", ExitCode::usage,
            "--reductions fast is not available in this version; leave it out");
  });
  weights::ShardModel shards = weights::open_shards(world, options.model);
  const parallel::Layout layout = parallel::agree(
      world, [&] { return parallel::choose_layout(options.layout, world.size(), shards.config.o_groups); });
  tokenizer::Tokenizer tokenizer = parallel::agree(world, [&] {
    return tokenizer::Tokenizer::from_json(shards.index.tokenizer_json, options.model + ": tokenizer.json",
                                           shards.config.vocab_size);
  });
  return {std::move(shards), std::move(tokenizer), layout};
}

RunningModel start_model(parallel::Session& session, const OpenModel& open, const RunOptions& options) {
  RunningModel running;
  running.grid = parallel::make_rank_grid(session.world(), open.layout);
  session.watchdog().progress("load weights");
  model::ModelOptions model_options;
  model_options.max_rows = options.row_budget;
  model_options.cone = options.cone;
  weights::LoadOptions load_options;
  load_options.checksums = options.checksums;
  load_options.direct = options.direct;
  load_options.progress = [&] { session.watchdog().progress("load weights"); };
  weights::LoadReport report;
  const ProcessMemory before = process_memory();
  running.model = model::load_model(open.shards, *running.grid.replica, model_options, load_options, &report);
  const ProcessMemory after = process_memory();
  log::info("load",
            "seconds={:.2f} read_bytes={} weight_bytes={} workspace_bytes={} rss_before_bytes={} rss_after_bytes={} "
            "rss_peak_bytes={}",
            report.total_s, report.bytes_read, running.model->weight_bytes(), running.model->workspace_bytes(),
            before.resident_bytes, after.resident_bytes, after.peak_bytes);
  engine::EngineOptions engine_options;
  engine_options.row_budget = options.row_budget;
  engine_options.prefix_sharing = options.prefix_sharing;
  engine_options.cache_bytes = static_cast<std::int64_t>(options.memory_gib * 0x1p30);
  running.engine = std::make_unique<engine::Engine>(*running.model, &open.tokenizer, engine_options);
  return running;
}

}  // namespace bathys::apps
