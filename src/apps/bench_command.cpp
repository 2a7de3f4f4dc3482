// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "bench/linear_bench.hpp"
#include "bench/sum_bench.hpp"
#include "core/error.hpp"
#include "parallel/session.hpp"

#include <iostream>
#include <memory>

namespace bathys::apps {

// bathys bench linear: kernels beside the machine's own limits; bench sums: exact sums beside the linears that they
// follow.  Both sides of a ratio are measured in the same run.
void add_bench(CLI::App& program, Commands& commands) {
  struct Options {
    bench::LinearBenchOptions linear;
    bench::SumBenchOptions sums;
    parallel::SessionOptions session;
  };
  CLI::App* const app = program.add_subcommand("bench", "Measure kernels beside the machine's own limits");
  app->require_subcommand(1);
  CLI::App* const linear = app->add_subcommand("linear", "Linear layers on packed weights, one process");
  const auto options = std::make_shared<Options>();
  linear->add_option("--kinds", options->linear.kinds, "weights: fp4 fp8 bf16 f32 (default all)")->delimiter(',');
  linear->add_option("--rows", options->linear.rows, "rows of inputs (default 1,4,16,64,256)")->delimiter(',');
  linear->add_option("--seconds", options->linear.seconds, "of each measurement")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  linear->add_option("--simd", options->linear.simd, "AVX2, AVX3 or AVX3_DL (default: the best of this CPU)");
  linear->add_option("--threads", options->session.threads, "threads (default: the cores it may use)")
      ->check(CLI::PositiveNumber);
  CLI::App* const sums = app->add_subcommand("sums", "Fixed-point sums of experts and output groups, one process");
  sums->add_option("--rows", options->sums.rows, "rows of inputs (default 1,16,256)")->delimiter(',');
  sums->add_option("--threads", options->session.threads, "threads (default: the cores it may use)")
      ->check(CLI::PositiveNumber);
  commands.push_back(
      {app, [options, sums] {
         return parallel::run_session(options->session, [&](parallel::Session& session) {
           require(session.size() == 1, ExitCode::usage, "bench measures one process, {} were started", session.size());
           if (sums->parsed()) {
             bench::bench_sums(options->sums, std::cout);
           } else {
             bench::bench_linear(options->linear, std::cout);
           }
           require(static_cast<bool>(std::cout.flush()), ExitCode::stopped, "standard output: cannot be written");
           return ExitCode::ok;
         });
       }});
}

}  // namespace bathys::apps
