// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "eval/journal.hpp"
#include "eval/run_folder.hpp"
#include "eval/scores.hpp"

#include <string>
#include <vector>

namespace bathys::eval {

// Writes results.jsonl (input order, one line per request and repeat), failed.jsonl, items.jsonl, scores.jsonl (what
// built-in checks say of each answer) and, where there are OpenAI lines, openai_output.jsonl and openai_errors.jsonl
// from the records, each whole or not at all, and adds every record to `scores`.  An unfinished run has
// results.partial.jsonl instead, with the records there are.
//   throws as io::fail_write
void write_results(const RunFolder& folder, const std::vector<Request>& requests, const RecordTable& records,
                   RunScores& scores, const Pulse& pulse = {});

// The files of a finished run that write_results() wrote, with their bytes: {"results.jsonl": 812, ..}, for
// summary.json.
[[nodiscard]] Json result_sizes(const RunFolder& folder);
// Whether the folder has a summary.json and all files that it lists, as long as it says.
[[nodiscard]] bool results_are_whole(const RunFolder& folder);

// The scores alone, no file touched.
void read_results(const std::vector<Request>& requests, const RecordTable& records, RunScores& scores,
                  const Pulse& pulse = {});

// state: in_progress, cancelling (a stop was asked for), finalizing; at the end completed, cancelled (the same command
// goes on) or failed.
struct RunStatus {
  std::string state;
  std::int64_t total = 0, done = 0, failed = 0;
  double seconds = 0;        // of this start
  double answers_per_s = 0;  // of this start
  std::optional<double> seconds_left;
};
// Replaces status.json.
void write_status(const RunFolder& folder, const RunStatus& status);

}  // namespace bathys::eval
