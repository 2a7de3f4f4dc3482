// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/memory_budget.hpp"
#include "apps/run_options.hpp"
#include "apps/validators.hpp"
#include "bench/engine_bench.hpp"
#include "core/error.hpp"

#include <iostream>
#include <memory>

namespace bathys::apps {

// bathys bench engine: full batches beside one sequence at a time, and what the time is spent on.
void add_bench_engine(CLI::App& bench, Commands& commands) {
  struct Options {
    RunOptions run;
    bench::EngineBenchOptions bench;
  };
  CLI::App* const app = bench.add_subcommand("engine", "The engine's full batches beside one sequence at a time");
  const auto options = std::make_shared<Options>();
  add_run_options(*app, options->run);
  app->add_option("--requests", options->bench.requests, "requests: half choices, half generations")
      ->check(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--context", options->bench.context, "tokens of a context, from half to one and a half of it")
      ->check(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--generated", options->bench.generated, "tokens drawn by a generation")
      ->check(whole_number(1, std::int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--cone-context", options->bench.cone,
                  "tokens of a context whose last row alone is wanted, run by the cone and in full; 0: not measured")
      ->check(whole_number(0, std::int64_t{1} << 20))
      ->capture_default_str();
  app->add_option("--repeats", options->bench.repeats, "of each measurement; the fastest counts")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  commands.push_back({app, [options] {
                        return parallel::run_session(options->run.session, [&](parallel::Session& session) {
                          require(session.size() == 1, ExitCode::usage, "bench measures one process, {} were started",
                                  session.size());
                          const OpenModel open = open_model(session, options->run);
                          RunningModel running =
                              start_model(session, open, options->run, announce_memory(session, open, options->run));
                          bench::bench_engine(options->bench, *running.model, std::cout);
                          flush_output();
                          return ExitCode::ok;
                        });
                      }});
}

}  // namespace bathys::apps
