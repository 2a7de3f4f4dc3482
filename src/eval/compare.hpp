// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/paired_test.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// Two finished runs of the same requests, answer by answer.
namespace bathys::eval {

// An answer on which the runs differ.
struct ChangedAnswer {
  std::string custom_id, task;
  std::int32_t repeat = 0;
  std::string what;  // a built-in check, "ok" or "text"
  Json a, b;
};

// The largest difference of two log-probabilities of the same thing.
struct LogprobDifference {
  double difference = -1;  // |b - a|; < 0: nothing was compared
  double a = 0, b = 0;
  std::string custom_id, place;  // "logprob[2]"
  std::int32_t repeat = 0;
  std::int64_t n = 0;  // values compared
};

struct ScoreComparison {
  std::string task, score;
  PairedResult result;  // an item is a request; its value the mean over its repeats
};

struct RunComparison {
  std::string a, b;  // the folders
  // What the runs say of themselves and differ in: name, A's value, B's value.
  struct Difference {
    std::string name, a, b;
  };
  std::vector<Difference> differences;
  std::int64_t answers = 0, same = 0;  // same: the result line is equal byte for byte
  std::int64_t failed_only_a = 0, failed_only_b = 0, failed_both = 0;
  std::int64_t texts = 0, other_texts = 0;    // generations answered by both; those with another text
  std::int64_t greedy = 0, other_greedy = 0;  // continuations scored by both; those with another is_greedy
  LogprobDifference sums, tokens;             // of whole continuations or documents; of single tokens
  std::vector<ScoreComparison> scores;        // by task and score
  std::vector<ChangedAnswer> changed;         // in the order of A
};

// Reads results.jsonl and scores.jsonl of both folders.
//   throws Error(bad_input) for a file missing or not of a run; Error(usage) when a run is not finished or the two did
//   not answer the same requests, naming the first that differs
RunComparison compare_runs(const std::string& a, const std::string& b);

[[nodiscard]] Json to_json(const RunComparison& comparison);
// For people; at most `max_changed` changed answers.
[[nodiscard]] std::string to_text(const RunComparison& comparison, std::int64_t max_changed);

}  // namespace bathys::eval
