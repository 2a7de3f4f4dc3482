// SPDX-License-Identifier: Apache-2.0
#include "eval/dry_run.hpp"

#include "catalog/cache_sizes.hpp"
#include "core/error.hpp"
#include "core/json.hpp"
#include "core/log.hpp"
#include "engine/prefix_tree.hpp"
#include "io/file.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

using engine::PrefixTree;

// Tokens that all sequences begin with and that the engine computes once: up to the one whose successor is the first
// scored.
std::int64_t common_beginning(const std::vector<engine::ScoredSequence>& sequences) {
  const auto& first = sequences.front().tokens;
  std::int64_t common = std::ssize(first);
  for (const auto& sequence : sequences) {
    const auto end = std::mismatch(first.begin(), first.end(), sequence.tokens.begin(), sequence.tokens.end());
    common = std::min({common, static_cast<std::int64_t>(end.first - first.begin()), sequence.first_scored - 1});
  }
  return sequences.size() > 1 && common >= PrefixTree::kMinShared ? common : 0;
}

void count(const engine::ScoreJob& job, bool sharing, DryRun& out) {
  const std::int64_t shared = sharing ? common_beginning(job.sequences) : 0;
  out.prefill_rows += shared;
  for (const auto& sequence : job.sequences) {
    const auto n = std::ssize(sequence.tokens);
    out.scored_tokens += n - sequence.first_scored;
    out.prefill_rows += n - 1 - shared;
    out.longest = std::max<std::int64_t>(out.longest, n - 1);
  }
}

void count(const engine::GenerateJob& job, bool sharing, DryRun& out) {
  const auto n_prompt = std::ssize(job.prompt), n = std::ssize(job.repeats);
  const bool shared = sharing && n > 1 && n_prompt - 1 >= PrefixTree::kMinShared;
  out.prefill_rows += shared ? n_prompt - 1 + n : n_prompt * n;  // the last token of the prompt by each repeat
  out.drawn_tokens += job.max_new_tokens * std::ssize(job.repeats);
  out.longest = std::max<std::int64_t>(out.longest, std::ssize(job.prompt) + job.max_new_tokens);
}

void count(const Request& request, const DryRunOptions& options, DryRun& out) {
  std::vector<std::int32_t> repeats(static_cast<std::size_t>(request.n_repeats()));
  std::iota(repeats.begin(), repeats.end(), 0);
  const PreparedTask task = prepare_task(request, options.tasks, repeats);
  out.answers += request.n_repeats();
  if (request.first_repeat == 0) {
    ++out.requests;
    ++out.kinds[request.kind()];
  }
  if (task.failure) out.failures[task.failure->code] += request.n_repeats();
  out.prompt_tokens += task.prompt_tokens;
  if (const auto* score = std::get_if<engine::ScoreJob>(&task.job)) count(*score, options.prefix_sharing, out);
  if (const auto* generate = std::get_if<engine::GenerateJob>(&task.job)) count(*generate, options.prefix_sharing, out);
}

std::optional<double> speed(const Json& summary, const char* name) {
  const Json& value = summary.at("speed").at(name);
  return value.is_number() && value.get<double>() > 0 ? std::optional(value.get<double>()) : std::nullopt;
}

void estimate_time(const std::string& folder, DryRun& out) {
  const std::string file = folder + "/summary.json";
  const Json summary = parse_json(io::read_small_file(file), file, ExitCode::bad_input);
  try {
    out.prefill_rows_per_s = speed(summary, "prefill_rows_per_s");
    out.decode_rows_per_s = speed(summary, "decode_rows_per_s");
  } catch (const Json::exception&) {
    fail(ExitCode::bad_input, "{} is no summary of a run; give --speed-from the folder of a finished one", file);
  }
  double seconds = 0;
  if (out.prefill_rows > 0 && !out.prefill_rows_per_s) return;
  if (out.drawn_tokens > 0 && !out.decode_rows_per_s) return;
  if (out.prefill_rows > 0) seconds += static_cast<double>(out.prefill_rows) / *out.prefill_rows_per_s;
  if (out.drawn_tokens > 0) seconds += static_cast<double>(out.drawn_tokens) / *out.decode_rows_per_s;
  out.seconds = seconds;
}

std::string row(std::string_view name, const std::string& value, std::string_view note = "") {
  return fmt::format("{:<26} {:>16}  {}\n", name, value, note);
}

}  // namespace

DryRun dry_run(const DryRunOptions& options, const Pulse& pulse) {
  const RequestFile file = read_requests(read_request_text(options.requests, pulse), options.rules, pulse);
  for (const RequestFault& fault : file.faults) log::write(log::Level::warn, fault.text());
  require_valid(file, options.requests);
  if (const std::string words = oversights(file); !words.empty()) log::warn("requests", "note=\"{}\"", words);
  DryRun out;
  for (const Request& request : file.requests) {
    beat(pulse);
    count(request, options, out);
  }
  out.model_bytes = options.model_bytes;
  out.longest_cache_bytes =
      catalog::sequence_bytes(*options.config).total() + catalog::compressed_cache_bytes(*options.config, out.longest);
  if (!options.speed_from.empty()) estimate_time(options.speed_from, out);
  return out;
}

std::string to_text(const DryRun& run) {
  std::string text = row("requests", fmt::format("{}", run.requests));
  for (const auto& [kind, n] : run.kinds) text += row("  " + kind, fmt::format("{}", n));
  text += row("answers", fmt::format("{}", run.answers));
  for (const auto& [code, n] : run.failures) text += row("  " + code, fmt::format("{}", n), "will fail");
  text += row("prompt tokens", fmt::format("{}", run.prompt_tokens));
  text += row("scored tokens", fmt::format("{}", run.scored_tokens));
  text += row("drawn tokens", fmt::format("{}", run.drawn_tokens), "at most");
  text += row("prefill rows", fmt::format("{}", run.prefill_rows),
              "at most: tokens through the model before anything is drawn");
  text += row("longest sequence", fmt::format("{}", run.longest), "tokens, those drawn included");
  text += row("model bytes", fmt::format("{}", run.model_bytes), "of all ranks together");
  text += row("longest cache bytes", fmt::format("{}", run.longest_cache_bytes), "of the longest sequence");
  if (run.seconds) {
    text += row("seconds", fmt::format("{:.0f}", *run.seconds),
                "at most, after loading, at the speed of the run given by --speed-from");
  } else {
    text += row("seconds", "-", "--speed-from RUN_DIR estimates them by the speed of a finished run");
  }
  return text;
}

}  // namespace bathys::eval
