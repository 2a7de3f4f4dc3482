// SPDX-License-Identifier: Apache-2.0
#include "apps/commands.hpp"
#include "apps/memory_budget.hpp"
#include "apps/run_options.hpp"
#include "apps/validators.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "eval/dry_run.hpp"
#include "eval/eval_run.hpp"
#include "io/hash.hpp"
#include "io/output.hpp"
#include "numerics/version.hpp"
#include "parallel/agree.hpp"
#include "parallel/lead.hpp"
#include "parallel/signals.hpp"
#include "tokenizer/prompt.hpp"

#include <algorithm>
#include <filesystem>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <system_error>

#include <fcntl.h>

namespace bathys::apps {
namespace {

struct Options {
  RunOptions run;
  eval::EvalOptions eval;
  bool dry_run = false;
  std::string speed_from;  // a run folder
  std::string share;       // "K/N"
  bool no_new_answers = false;
};

std::string base_name(const std::string& folder) {
  std::filesystem::path path(folder);
  if (path.filename().empty()) path = path.parent_path();
  return path.filename().string();
}

eval::EvalSubject make_subject(const OpenModel& open, const Options& options, const parallel::Session& session) {
  eval::EvalSubject subject;
  subject.model_names = {base_name(open.shards.folder), open.shards.index.model_id};
  subject.max_length = open.shards.config.max_position_embeddings;
  subject.vocab_size = open.shards.config.vocab_size;
  subject.tasks = open.tasks();
  // Of the content, since a model's id rests on its checkpoint's headers; a synthetic model's says all there is.
  const io::ShardIndex& index = open.shards.index;
  subject.identity = {{"checkpoint", open.shards.synthetic ? index.model_id : index.content_id()},
                      {"tokenizer_sha256", io::sha256_hex(open.shards.index.tokenizer_json)},
                      {"encoder", std::string(tokenizer::kPromptVersion)},
                      {"records", std::string(eval::kRecordVersion)},
                      {"reductions", options.run.reductions},
                      {"device_kind", session.device() < 0 ? "cpu" : "gpu"},
                      {"numerics_version", std::string(numerics::kNumericsVersion)}};
  subject.options = {{"program", program_version()},
                     {"model", open.shards.folder},
                     {"ranks", std::to_string(session.size())},
                     {"hosts", std::to_string(session.n_nodes())},
                     {"threads", std::to_string(session.threads())},
                     {"layout", parallel::to_string(open.layout)},
                     {"row_budget", std::to_string(options.run.row_budget)},
                     {"memory_gib", fmt::format("{}", options.run.memory_gib)},
                     {"cone", options.run.cone ? "on" : "off"},
                     {"prefix_sharing", options.run.prefix_sharing ? "on" : "off"}};
  return subject;
}

// The table is for people and stands in summary.json too: a caller who closed standard output does without.
void print_table(const std::string& table) {
  const int flags = ::fcntl(1, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) == O_RDONLY) return;
  io::Output out;
  out.write(table);
  out.finish();
}

// Whether `inner` is `outer` or lies below it, symbolic links followed.
bool is_inside(const std::string& inner, const std::string& outer) {
  std::error_code none;
  const auto at = std::filesystem::weakly_canonical(inner, none);
  const auto around = std::filesystem::weakly_canonical(outer, none);
  return std::mismatch(around.begin(), around.end(), at.begin(), at.end()).first == around.end();
}

// What the command line asks for can be, as far as the model's config tells.
void check_options(const Options& options, const OpenModel& open) {
  require(open.shards.synthetic || !is_inside(options.eval.out, options.run.model), ExitCode::usage,
          "--out {} lies in the folder of the shards {}, which holds nothing but the model; choose another",
          options.eval.out, options.run.model);
  const std::int64_t longest = open.shards.config.max_position_embeddings;
  require(options.eval.max_length <= longest, ExitCode::usage,
          "--max-length is {}, but the model is made for {} positions; give a smaller one or none",
          options.eval.max_length, longest);
}

// --dry-run: rank 0 reads and prepares every request; no weight is read and nothing is written.
ExitCode estimate(parallel::Session& session, const OpenModel& open, const Options& options,
                  const eval::EvalSubject& subject) {
  parallel::lead(session.world(), &session.watchdog(), "dry run", [&](const Pulse& pulse) {
    eval::DryRunOptions dry;
    dry.requests = options.eval.requests;
    dry.speed_from = options.speed_from;
    dry.rules = eval::rules_of(options.eval, subject);
    dry.tasks = subject.tasks;
    dry.tasks.prefix_token = options.eval.prefix_token.value_or(subject.tasks.bos);
    dry.prefix_sharing = options.run.prefix_sharing;
    dry.config = &open.shards.config;
    for (const io::ShardDataset& dataset : open.shards.index.datasets) dry.model_bytes += dataset.bytes;
    print_table(eval::to_text(eval::dry_run(dry, pulse)));
  });
  return ExitCode::ok;
}

// What the model may take, and so what is left to answer: also what did not fit into the caches of an earlier start and
// does now.  Nothing where that is nothing.
std::optional<model::MemoryBudget> plan_memory(parallel::Session& session, const OpenModel& open,
                                               const Options& options, eval::EvalRun& run) {
  if (run.n_left() == 0 && run.n_misfits() == 0) return std::nullopt;
  try {
    const model::MemoryBudget budget = announce_memory(session, open, options.run);
    run.fit_into(budget.caches);
    return run.n_left() > 0 ? std::optional(budget) : std::nullopt;
  } catch (const parallel::AgreedError&) {
    if (run.n_left() > 0) throw;
    return std::nullopt;  // the model has no room here, but the run can be shown again
  }
}

ExitCode evaluate(parallel::Session& session, const Options& options) {
  const Timer timer;
  // 1. The model's index, config and tokenizer; no weights yet.
  RunOptions run_options = options.run;
  if (options.no_new_answers) run_options.layout.clear();  // no model runs in it
  const OpenModel open = open_model(session, run_options);
  parallel::agree(session.world(), [&] { check_options(options, open); });
  if (options.dry_run) return estimate(session, open, options, make_subject(open, options, session));
  // 2. The requests, all of them, and what an earlier start has answered.
  eval::EvalOptions eval_options = options.eval;
  eval_options.share = parallel::agree(
      session.world(), [&] { return options.share.empty() ? eval::Share() : eval::read_share(options.share); });
  eval_options.layout = parallel::to_string(open.layout);
  eval_options.memory_gib = options.run.memory_gib;
  eval_options.no_new_answers = options.no_new_answers;
  eval_options.max_in_flight = 2 * sequences_alive(options.run);
  eval_options.cpus = session.cpus();
  eval::EvalRun run(session.world(), &session.watchdog(), eval_options, make_subject(open, options, session));
  // 3. The weights, and the work.
  std::optional<model::MemoryBudget> memory;
  if (!options.no_new_answers) memory = plan_memory(session, open, options, run);
  if (memory) {
    const RunningModel running = start_model(session, open, options.run, *memory);
    run.work(*running.engine, *running.grid, timer.seconds());
  }
  // 4. The result files and the table.
  std::string table, cause;
  const ExitCode code = run.finish(table, cause);
  if (memory) report_memory(session, *memory);  // what finish() took is in the peak
  if (session.rank() == 0) print_table(table);
  if (!cause.empty()) log::cause(cause);
  if (code == ExitCode::stopped)
    log::info("stopped", "out={} text=\"run the same command again to go on\"", options.eval.out);
  return code;
}

}  // namespace

// bathys eval --model SHARD_DIR --requests FILE.jsonl --out RUN_DIR: answers every request of a file.
void add_eval(CLI::App& program, Commands& commands) {
  CLI::App* const app = program.add_subcommand(
      "eval", "Answer a file of requests; the same command in the same folder goes on where it stopped");
  const auto options = std::make_shared<Options>();
  add_run_options(*app, options->run);
  eval::EvalOptions& eval = options->eval;
  app->add_option("--requests", eval.requests, "JSON Lines of requests; a pipe or - for standard input will do")
      ->required();
  app->add_option("--out", eval.out, "run folder")->required();
  app->add_option("--seed", eval.seed, "of requests that name none (default 0)")->check(whole_number(0));
  app->add_option("--max-length", eval.max_length,
                  "tokens a sequence may have (default: the model's, which is the most too)")
      ->check(whole_number(1, std::int64_t{1} << 40));
  app->add_option("--prefix-token", eval.prefix_token,
                  "id before rolling windows and for empty contexts (default: BOS)")
      ->check(whole_number(0, std::numeric_limits<std::int32_t>::max()));
  app->add_option("--max-seconds", eval.max_seconds, "begin nothing new after so long, exit 75")->check(number(0));
  app->add_option("--grace-seconds", eval.grace_seconds, "for what is in flight when a stop is asked for")
      ->check(number(0))
      ->capture_default_str();
  app->add_option("--status-seconds", eval.status_seconds, "between progress lines")
      ->check(number(0))
      ->capture_default_str();
  app->add_option("--prepare-threads", eval.prepare_threads,
                  "threads of each rank that turn text into tokens ahead of the steps, beside --threads; 0: none")
      ->check(whole_number(0, 256))
      ->capture_default_str();
  app->add_flag("--dry-run", options->dry_run,
                "check the requests and count their tokens; reads no weights and writes nothing");
  app->add_option("--speed-from", options->speed_from,
                  "with --dry-run: run folder whose speed the time is estimated by");
  app->add_option("--share", options->share,
                  "K/N: answer only share K of N (0 .. N-1) of the requests; --take-from puts shares together");
  app->add_option("--take-from", eval.take_from,
                  "run folders of the same requests and options, or shares of them, whose answers are taken over");
  app->add_flag("--no-new-answers", options->no_new_answers,
                "compute nothing: the result files of what is answered; 75 where anything is missing");
  app->add_flag("--retry-failed", eval.retry_failed, "answer again what failed");
  app->add_option("--max-failed", eval.max_failed, "stop when more answers failed (default: no limit)")
      ->check(whole_number(0));
  commands.push_back({app, [options] {
                        parallel::install_signal_handlers();
                        return parallel::run_session(options->run.session, [&](parallel::Session& session) {
                          return evaluate(session, *options);
                        });
                      }});
}

}  // namespace bathys::apps
