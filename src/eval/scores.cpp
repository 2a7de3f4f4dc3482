// SPDX-License-Identifier: Apache-2.0
#include "eval/scores.hpp"

#include "tokenizer/unicode.hpp"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string_view>
#include <utility>

namespace bathys::eval {
namespace {

// Index of the largest value; the first one wins ties.
std::int64_t best_of(const std::vector<double>& values) {
  return std::max_element(values.begin(), values.end()) - values.begin();
}

std::string_view stripped(std::string_view text) { return tokenizer::strip_left(tokenizer::strip_right(text)); }

}  // namespace

void MeanScore::add(double value) {
  ++n_;
  const double distance = value - mean_;
  mean_ += distance / static_cast<double>(n_);
  squares_ += distance * (value - mean_);
}

Score MeanScore::score(std::string name) const {
  Score out{std::move(name), n_, std::nullopt, std::nullopt};
  const auto n = static_cast<double>(n_);
  if (n_ > 0) out.value = mean_;
  if (n_ > 1) out.standard_error = std::sqrt(squares_ / (n - 1) / n);
  return out;
}

void RatioScore::add(double logprob, double units) {
  ++n_;
  logprob_ += logprob;
  units_ += units;
  logprob2_ += logprob * logprob;
  product_ += logprob * units;
  units2_ += units * units;
}

std::optional<double> RatioScore::ratio() const {
  if (n_ == 0 || units_ <= 0) return std::nullopt;
  return -logprob_ / units_;
}

// Linearized: the residuals -logprob - ratio * units of the documents have mean 0; their spread over the mean length is
// the ratio's error.
std::optional<double> RatioScore::ratio_error() const {
  const auto r = ratio();
  if (n_ < 2 || !r) return std::nullopt;
  const double squares = std::max(0.0, logprob2_ + 2 * *r * product_ + *r * *r * units2_);
  const auto n = static_cast<double>(n_);
  return std::sqrt(n / (n - 1) * squares) / units_;
}

Score RatioScore::perplexity(std::string name) const {
  Score out{std::move(name), n_, std::nullopt, std::nullopt};
  if (const auto r = ratio(); r && std::isfinite(std::exp(*r))) {
    out.value = std::exp(*r);
    if (const auto error = ratio_error()) out.standard_error = *out.value * *error;
  }
  return out;
}

Score RatioScore::bits_per_unit(std::string name) const {
  Score out{std::move(name), n_, std::nullopt, std::nullopt};
  if (const auto r = ratio()) out.value = *r / std::numbers::ln2;
  if (const auto error = ratio_error()) out.standard_error = *error / std::numbers::ln2;
  return out;
}

void RunScores::announce(const Request& request) {
  Task& task = tasks_[request.task];
  if (const auto* scored = std::get_if<Loglikelihood>(&request.body))
    task.has_choices = task.has_choices || scored->gold.has_value();
  if (const auto* generate = std::get_if<Generate>(&request.body))
    task.has_matches = task.has_matches || generate->gold.has_value();
  task.has_rolling = task.has_rolling || std::holds_alternative<Rolling>(request.body);
  totals_.total += request.n_repeats();
  totals_.requests.add(request);
}

void RunScores::add_item(const Json& item) { totals_.latency_s.add(item.at("seconds").get<double>()); }

ItemScores RunScores::add_loglikelihood(const Loglikelihood& body, const Json& result, Task& task) {
  const auto sums = result["logprob"].get<std::vector<double>>();
  for (const Json& n : result["n_tokens"]) totals_.scored_tokens += n.get<std::int64_t>();
  for (const Json& n : result["truncated"]) totals_.truncated += n.get<std::int64_t>() > 0 ? 1 : 0;
  if (!body.gold) return {};
  std::vector<double> per_character, per_byte;
  for (std::size_t i = 0; i < sums.size(); ++i) {
    const auto* texts = std::get_if<std::vector<std::string>>(&body.continuations);
    const std::string text =
        texts != nullptr ? (*texts)[i] : tokenizer_->decode(std::get<std::vector<TokenIds>>(body.continuations)[i]);
    per_character.push_back(sums[i] /
                            static_cast<double>(std::max<std::int64_t>(1, tokenizer::count_code_points(text))));
    per_byte.push_back(sums[i] / static_cast<double>(std::max<std::size_t>(1, text.size())));
  }
  const auto right = [&](bool is) { return is ? 1.0 : 0.0; };
  ItemScores out = {{"acc", right(best_of(sums) == *body.gold)},
                    {"acc_norm", right(best_of(per_character) == *body.gold)},
                    {"acc_bytes", right(best_of(per_byte) == *body.gold)},
                    {"exact_match", right(result["is_greedy"][static_cast<std::size_t>(*body.gold)].get<bool>())}};
  task.acc.add(out[0].second);
  task.acc_norm.add(out[1].second);
  task.acc_bytes.add(out[2].second);
  task.exact_match.add(out[3].second);
  return out;
}

ItemScores RunScores::add_generate(const Generate& body, const Json& result, Task& task) {
  ++totals_.finish_reasons[result["finish_reason"].get<std::string>()];
  totals_.in_thinking += result["in_thinking"].get<bool>() ? 1 : 0;
  if (!body.gold) return {};
  const std::string text = result["text"].get<std::string>();
  const bool match = std::any_of(body.gold->begin(), body.gold->end(),
                                 [&](const auto& gold) { return stripped(text) == stripped(gold); });
  task.exact_match.add(match ? 1 : 0);
  return {{"exact_match", match ? 1.0 : 0.0}};
}

ItemScores RunScores::add(const Request& request, const Json& record) {
  Task& task = tasks_[request.task];
  const Json& usage = record["usage"];
  totals_.prompt_tokens += usage["prompt_tokens"].get<std::int64_t>();
  totals_.reasoning_tokens += usage["reasoning_tokens"].get<std::int64_t>();
  if (!record["ok"].get<bool>()) {
    ++totals_.failed;
    ++totals_.failed_by_code[record["error"]["code"].get<std::string>()];
    return {};
  }
  ++totals_.done;
  totals_.prompt_lengths.add(usage["prompt_tokens"].get<double>());
  totals_.completion_lengths.add(usage["completion_tokens"].get<double>());
  const Json& result = record["result"];
  if (const auto* scored = std::get_if<Loglikelihood>(&request.body)) {
    return add_loglikelihood(*scored, result, task);
  }
  if (const auto* generate = std::get_if<Generate>(&request.body)) {
    totals_.generated_tokens += usage["completion_tokens"].get<std::int64_t>();
    return add_generate(*generate, result, task);
  }
  const double logprob = result["logprob"].get<double>();
  const double n_bytes = result["n_bytes"].get<double>();
  totals_.scored_tokens += result["n_tokens"].get<std::int64_t>();
  task.tokens.add(logprob, result["n_tokens"].get<double>());
  task.words.add(logprob, result["n_words"].get<double>());
  task.bytes.add(logprob, n_bytes);
  if (n_bytes == 0) return {};
  return {{"document_bits_per_byte", -logprob / n_bytes / std::numbers::ln2}};
}

std::vector<std::pair<std::string, std::vector<Score>>> RunScores::tasks() const {
  std::vector<std::pair<std::string, std::vector<Score>>> out;
  for (const auto& [name, task] : tasks_) {
    std::vector<Score> scores;
    if (task.has_rolling) {
      scores.push_back(task.tokens.perplexity("token_perplexity"));
      scores.push_back(task.words.perplexity("word_perplexity"));
      scores.push_back(task.bytes.perplexity("byte_perplexity"));
      scores.push_back(task.bytes.bits_per_unit("bits_per_byte"));
    }
    if (task.has_choices) {
      scores.push_back(task.acc.score("acc"));
      scores.push_back(task.acc_norm.score("acc_norm"));
      scores.push_back(task.acc_bytes.score("acc_bytes"));
    }
    if (task.has_choices || task.has_matches) scores.push_back(task.exact_match.score("exact_match"));
    out.emplace_back(name, std::move(scores));
  }
  return out;
}

}  // namespace bathys::eval
