// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/memory_budget.hpp"
#include "apps/run_options.hpp"
#include "apps/validators.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "eval/task.hpp"
#include "io/output.hpp"
#include "parallel/agree.hpp"

#include <array>
#include <memory>
#include <string>
#include <vector>

namespace bathys::apps {
namespace {

struct Options {
  RunOptions run;
  std::string prompt;
  bool bos = true;
  std::uint64_t seed = 0;
  eval::Generate generate;
};

eval::Request make_request(const Options& options, const OpenModel& open) {
  eval::Request request;
  request.custom_id = "generate";
  request.seed = options.seed;
  request.max_length = open.shards.config.max_position_embeddings;
  request.add_bos = options.bos;
  eval::Generate body = options.generate;
  body.context = options.prompt;
  request.body = body;
  return request;
}

ExitCode generate(parallel::Session& session, const Options& options) {
  constexpr std::array<std::int32_t, 1> kOnce = {0};
  const OpenModel open = open_model(session, options.run);
  const eval::TaskContext tasks = open.tasks();
  const eval::Request request = make_request(options, open);
  eval::PreparedTask task = eval::prepare_task(request, tasks, kOnce);
  parallel::agree(session.world(), [&] {
    if (task.failure) fail(ExitCode::usage, "--prompt: {}: {}", task.failure->code, task.failure->message);
  });
  const RunningModel running = start_model(session, open, options.run, announce_memory(session, open, options.run));
  running.engine->submit(std::get<engine::GenerateJob>(task.job));
  while (running.engine->step()) {
  }
  const std::vector<engine::JobResult> results = running.engine->take_finished();
  require(results.size() == 1, ExitCode::internal, "the engine gave {} answers to one prompt; please report this",
          results.size());
  const eval::Record record = eval::make_records(request, task, tasks, kOnce, results.front()).front();
  const Json json = parse_json(record.text, "the answer", ExitCode::internal);
  parallel::agree(session.world(), [&] {
    require(record.ok, ExitCode::internal, "generation failed: {}", record.ok ? std::string() : json["error"].dump());
  });
  if (session.rank() == 0) {
    io::Output out;
    out.print("{}\n", json["result"]["text"].get<std::string>());
    out.finish();
    const engine::EngineCounters& counters = running.engine->counters();
    log::info("generate", "prompt_tokens={} tokens={} finish={} prefill_s={:.3f} decode_s={:.3f}",
              json["usage"]["prompt_tokens"].get<std::int64_t>(),
              json["usage"]["completion_tokens"].get<std::int64_t>(),
              json["result"]["finish_reason"].get<std::string>(), counters.prefill_s, counters.decode_s);
  }
  return ExitCode::ok;
}

}  // namespace

// bathys generate --model SHARD_DIR --prompt TEXT: continues one text.
void add_generate(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand("generate", "Continue one text");
  const auto options = std::make_shared<Options>();
  options->generate.max_gen_toks = 80;
  add_run_options(*app, options->run);
  app->add_option("--prompt", options->prompt, "text to continue; spellings of special tokens count")->required();
  app->add_option("--max-tokens", options->generate.max_gen_toks, "tokens to draw at most")
      ->check(whole_number(0))
      ->capture_default_str();
  app->add_option("--temperature", options->generate.temperature, "0: the most probable token each time")
      ->check(number(0))
      ->capture_default_str();
  app->add_option("--top-p", options->generate.top_p, "probability that the tokens drawn from must reach")
      ->check(number(1e-9, 1))
      ->capture_default_str();
  app->add_option("--stop", options->generate.until, "text that ends the generation; may be repeated");
  app->add_option("--seed", options->seed, "of the draws (default 0)")->check(whole_number(0));
  add_switch(*app, "--bos", options->bos, "begin with the BOS token, as the model's own prompts do");
  commands.push_back({app, [options] {
                        return parallel::run_session(options->run.session, [&](parallel::Session& session) {
                          return generate(session, *options);
                        });
                      }});
}

}  // namespace bathys::apps
