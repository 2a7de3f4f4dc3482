// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/tokenize_command.hpp"
#include "apps/validators.hpp"
#include "bench/io_bench.hpp"
#include "bench/linear_bench.hpp"
#include "bench/sum_bench.hpp"
#include "bench/tokenizer_bench.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "io/file.hpp"
#include "io/lines.hpp"
#include "parallel/session.hpp"

#include <iostream>
#include <memory>
#include <string>
#include <vector>

namespace bathys::apps {
namespace {

struct TokenizerOptions {
  std::string model, texts;
  double seconds = 1;
};

std::vector<std::string> read_texts(const std::string& file) {
  const std::string input = io::read_stream(file);
  std::vector<std::string> texts;
  io::LineReader lines(input);
  while (const auto line = lines.next()) {
    if (io::is_blank(line->bytes)) continue;
    const std::string name = fmt::format("{}: line {}", file, line->number);
    const Json value = parse_json(line->bytes, name, ExitCode::bad_requests);
    require(value.is_string(), ExitCode::bad_requests, "{}: expected a JSON string", name);
    texts.push_back(value.get<std::string>());
  }
  require(!texts.empty(), ExitCode::bad_requests, "{}: has no text, expected a JSON string a line", file);
  return texts;
}

// bathys bench tokenizer: one thread, no ranks, no device; tests/tokenizer/measure_beside_library.py sets the Hugging
// Face library beside it in the same run.
void add_tokenizer(CLI::App& bench, Commands& commands) {
  CLI::App* const app = bench.add_subcommand("tokenizer", "Texts to token ids and back, one thread");
  const auto options = std::make_shared<TokenizerOptions>();
  app->add_option("--model", options->model, "folder of shards, or a tokenizer.json")->required();
  app->add_option("--seconds", options->seconds, "of each measurement")->check(number(1e-3))->capture_default_str();
  app->add_option("FILE", options->texts, "one JSON string a line; -: standard input")->required();
  commands.push_back({app, [options] {
                        bench::bench_tokenizer([&] { return open_tokenizer(options->model); },
                                               read_texts(options->texts), options->seconds, std::cout);
                        flush_output();
                        return static_cast<int>(ExitCode::ok);
                      }});
}

// bathys bench io: one process; the disk is what is measured, so both sides of a ratio take turns on the same files.
void add_io(CLI::App& bench, Commands& commands) {
  CLI::App* const app =
      bench.add_subcommand("io", "Convert, verify and load beside plain copies and reads of the same bytes");
  const auto options = std::make_shared<bench::IoBenchOptions>();
  app->add_option("CHECKPOINT_DIR", options->checkpoint, "a checkpoint (bathys synth --to safetensors makes one)")
      ->required();
  app->add_option("SCRATCH_DIR", options->scratch, "folder for a copy and shards, which are removed again")->required();
  app->add_option("--repeats", options->repeats, "of everything, in turns; medians count")
      ->check(whole_number(1, 1000))
      ->capture_default_str();
  app->add_flag("--cold", options->cold, "ask the kernel to forget the files before each measurement");
  commands.push_back({app, [options] {
                        bench::bench_io(*options, std::cout);
                        flush_output();
                        return static_cast<int>(ExitCode::ok);
                      }});
}

}  // namespace

void flush_output() {
  require(static_cast<bool>(std::cout.flush()), ExitCode::stopped, "standard output: cannot be written");
}

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
  add_tokenizer(*app, commands);
  add_bench_engine(*app, commands);
  add_io(*app, commands);
  CLI::App* const linear = app->add_subcommand("linear", "Linear layers on packed weights, one process");
  const auto options = std::make_shared<Options>();
  options->session.watchdog_s = 0;  // measurements take as long as they are asked to
  linear->add_option("--kinds", options->linear.kinds, "weights: fp4 fp8 bf16 f32 (default all)")->delimiter(',');
  linear->add_option("--rows", options->linear.rows, "rows of inputs (default 1,4,16,64,256)")
      ->delimiter(',')
      ->check(whole_number(1, std::int64_t{1} << 20));
  linear->add_option("--seconds", options->linear.seconds, "of each measurement")
      ->check(number(1e-3))
      ->capture_default_str();
  linear->add_option("--simd", options->linear.simd, "AVX2, AVX3 or AVX3_DL (default: the best of this CPU)");
  linear->add_option("--threads", options->session.threads, "threads (default: the cores it may use)")
      ->check(whole_number(1, kMaxThreads));
  CLI::App* const sums = app->add_subcommand("sums", "Fixed-point sums of experts and output groups, one process");
  sums->add_option("--rows", options->sums.rows, "rows of inputs (default 1,16,256)")
      ->delimiter(',')
      ->check(whole_number(1, std::int64_t{1} << 20));
  sums->add_option("--threads", options->session.threads, "threads (default: the cores it may use)")
      ->check(whole_number(1, kMaxThreads));
  commands.push_back({app, [options, sums] {
                        return parallel::run_session(options->session, [&](parallel::Session& session) {
                          require(session.size() == 1, ExitCode::usage, "bench measures one process, {} were started",
                                  session.size());
                          if (sums->parsed()) {
                            bench::bench_sums(options->sums, std::cout);
                          } else {
                            bench::bench_linear(options->linear, std::cout);
                          }
                          flush_output();
                          return ExitCode::ok;
                        });
                      }});
}

}  // namespace bathys::apps
