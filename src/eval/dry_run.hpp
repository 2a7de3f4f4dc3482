// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/model_config.hpp"
#include "core/pulse.hpp"
#include "eval/request_reader.hpp"
#include "eval/task.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>

// What a run would take, before it is started.
namespace bathys::eval {

struct DryRunOptions {
  std::string requests;  // a file, a pipe, or "-"
  RequestRules rules;
  TaskContext tasks;
  bool prefix_sharing = true;
  const config::ModelConfig* config = nullptr;
  std::uint64_t model_bytes = 0;
  std::string speed_from;  // a run folder; empty: no time is estimated
};

struct DryRun {
  std::int64_t requests = 0, answers = 0;
  std::map<std::string, std::int64_t> kinds;          // lines by kind
  std::map<std::string, std::int64_t> failures;       // answers that are known to fail, by code
  std::int64_t prompt_tokens = 0, scored_tokens = 0;  // prompt: each context once
  std::int64_t drawn_tokens = 0;                      // at most
  std::int64_t prefill_rows = 0;  // tokens through the model before anything is drawn, at most: a beginning
                                  // that requests share is counted once for each of them
  std::int64_t longest = 0;       // tokens of the longest sequence, drawn ones included
  std::uint64_t model_bytes = 0;
  std::int64_t longest_cache_bytes = 0;  // caches of that sequence
  // From --speed-from, and the time that follows when every generation runs to its limit.
  std::optional<double> prefill_rows_per_s, decode_rows_per_s, seconds;
};

// Reads, checks and prepares every request.
//   throws Error: bad_requests for an invalid file, after listing its faults; bad_input for a folder without a summary
DryRun dry_run(const DryRunOptions& options, const Pulse& pulse = {});

[[nodiscard]] std::string to_text(const DryRun& run);

}  // namespace bathys::eval
