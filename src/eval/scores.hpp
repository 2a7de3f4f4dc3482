// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/distribution.hpp"
#include "eval/request.hpp"
#include "eval/request_counts.hpp"
#include "tokenizer/tokenizer.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What the records of a run say: sums over tasks, with standard errors.  Computed from the records in the order of the
// request file, so equal records give equal scores whatever happened between.
namespace bathys::eval {

// A score as reports show it: nothing where it is undefined (no items; for the error, one item).
struct Score {
  std::string name;
  std::int64_t n = 0;
  std::optional<double> value;
  std::optional<double> standard_error;
};

// Mean of per-item values; standard error = deviation (n - 1) / sqrt(n).
class MeanScore {
 public:
  void add(double value);
  [[nodiscard]] Score score(std::string name) const;

 private:
  std::int64_t n_ = 0;
  double mean_ = 0, squares_ = 0;  // sum of squared distances from the mean (Welford)
};

// exp(-sum of log-probabilities / sum of units) and -sum / (units ln 2) over documents of unequal length.  The standard
// error is that of a ratio of sums, over documents.
class RatioScore {
 public:
  void add(double logprob, double units);
  [[nodiscard]] Score perplexity(std::string name) const;
  [[nodiscard]] Score bits_per_unit(std::string name) const;

 private:
  [[nodiscard]] std::optional<double> ratio() const;
  [[nodiscard]] std::optional<double> ratio_error() const;

  std::int64_t n_ = 0;
  double logprob_ = 0, units_ = 0;
  double logprob2_ = 0, product_ = 0, units2_ = 0;
};

// Everything counted over the records.
struct RunTotals {
  std::int64_t total = 0, done = 0, failed = 0;  // answers, one per (request, repeat)
  std::map<std::string, std::int64_t> failed_by_code;
  std::map<std::string, std::int64_t> finish_reasons;
  std::int64_t truncated = 0, in_thinking = 0;
  std::int64_t prompt_tokens = 0, scored_tokens = 0, generated_tokens = 0, reasoning_tokens = 0;
  RequestCounts requests;
  Distribution latency_s;                           // of answers, from handed to the engine to answered
  Distribution prompt_lengths, completion_lengths;  // tokens, of answers that did not fail
};

// What the built-in checks say of one answer, by name: acc, acc_norm, acc_bytes, exact_match are 0 or 1; of rolling
// requests document_bits_per_byte.  Empty where nothing can be checked.
using ItemScores = std::vector<std::pair<std::string, double>>;

class RunScores {
 public:
  explicit RunScores(const tokenizer::Tokenizer* tokenizer) : tokenizer_(tokenizer) {}
  // Announces a request, so that its task is listed even when nothing of it succeeds.
  void announce(const Request& request);
  // Adds one record of it.
  ItemScores add(const Request& request, const Json& record);
  // Adds what the journal says of one answer beside its record.
  void add_item(const Json& item);
  [[nodiscard]] const tokenizer::Tokenizer* tokenizer() const { return tokenizer_; }
  [[nodiscard]] const RunTotals& totals() const { return totals_; }
  // Task names in order, each with its scores; requests without a task stand under "".
  [[nodiscard]] std::vector<std::pair<std::string, std::vector<Score>>> tasks() const;

 private:
  struct Task {
    bool has_choices = false, has_rolling = false, has_matches = false;
    MeanScore acc, acc_norm, acc_bytes, exact_match;
    RatioScore tokens, words, bytes;
  };
  ItemScores add_loglikelihood(const Loglikelihood& body, const Json& result, Task& task);
  ItemScores add_generate(const Generate& body, const Json& result, Task& task);

  const tokenizer::Tokenizer* tokenizer_;
  std::map<std::string, Task> tasks_;
  RunTotals totals_;
};

}  // namespace bathys::eval
