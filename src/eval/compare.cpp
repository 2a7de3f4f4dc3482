// SPDX-License-Identifier: Apache-2.0
#include "eval/compare.hpp"

#include "core/error.hpp"
#include "eval/finished_run.hpp"
#include "eval/json_text.hpp"
#include "eval/report.hpp"

#include <cmath>
#include <map>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

using Key = std::pair<std::string, std::string>;  // task, score

// Means over the repeats of one request, taken into the tests when its last repeat is past.
class ItemScoresOfBoth {
 public:
  explicit ItemScoresOfBoth(std::map<Key, PairedTest>& tests) : tests_(&tests) {}
  void add(const Answer& a, const Answer& b) {
    if (a.custom_id != custom_id_) finish();
    custom_id_ = a.custom_id;
    for (const Json* scores : {&a.scores, &b.scores}) {  // a score of failed answers alone is listed too
      for (const auto& [name, value] : scores->items()) tests_->try_emplace({a.task, name});
    }
    for (const auto& [name, value] : a.scores.items()) {
      if (!b.scores.contains(name)) continue;
      Sum& sum = sums_[{a.task, name}];
      sum.a += value.get<double>();
      sum.b += b.scores[name].get<double>();
      sum.n += 1;
    }
  }
  void finish() {
    for (const auto& [key, sum] : sums_) (*tests_)[key].add(sum.a / sum.n, sum.b / sum.n);
    sums_.clear();
  }

 private:
  struct Sum {
    double a = 0, b = 0, n = 0;
  };
  std::map<Key, PairedTest>* tests_;
  std::string custom_id_;
  std::map<Key, Sum> sums_;
};

void compare_number(const Json& a, const Json& b, const Answer& answer, const std::string& place,
                    LogprobDifference& worst) {
  const double difference = std::abs(b.get<double>() - a.get<double>());
  const std::int64_t n = worst.n + 1;
  if (difference > worst.difference)
    worst = {difference, a.get<double>(), b.get<double>(), answer.custom_id, place, answer.repeat, n};
  worst.n = n;
}

// Numbers, lists of numbers and lists of such lists, as far as both have them.
void compare_numbers(const Json& a, const Json& b, const Answer& answer, const std::string& place,
                     LogprobDifference& worst) {
  if (a.is_number() && b.is_number()) compare_number(a, b, answer, place, worst);
  if (!a.is_array() || !b.is_array()) return;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i)
    compare_numbers(a[i], b[i], answer, fmt::format("{}[{}]", place, i), worst);
}

// Drawn tokens, as long as both runs drew the same.
void compare_drawn(const Json& a, const Json& b, const Answer& answer, LogprobDifference& worst) {
  for (std::size_t i = 0; i < std::min(a.size(), b.size()) && a[i]["id"] == b[i]["id"]; ++i)
    compare_number(a[i]["logprob"], b[i]["logprob"], answer, fmt::format("logprobs[{}]", i), worst);
}

void compare_results(const Answer& a, const Answer& b, RunComparison& out) {
  const Json& left = a.record["result"];
  const Json& right = b.record["result"];
  if (left.contains("logprob")) compare_numbers(left["logprob"], right["logprob"], a, "logprob", out.sums);
  if (left.contains("token_logprobs"))
    compare_numbers(left["token_logprobs"], right["token_logprobs"], a, "token_logprobs", out.tokens);
  if (left.contains("logprobs")) compare_drawn(left["logprobs"], right["logprobs"], a, out.tokens);
  if (left.contains("is_greedy")) {
    for (std::size_t i = 0; i < left["is_greedy"].size(); ++i) {
      ++out.greedy;
      out.other_greedy += left["is_greedy"][i] == right["is_greedy"][i] ? 0 : 1;
    }
  }
  if (left.contains("text")) {
    ++out.texts;
    if (left["text"] != right["text"]) {
      ++out.other_texts;
      out.changed.push_back({a.custom_id, a.task, a.repeat, "text", left["text"], right["text"]});
    }
  }
  for (const auto& [name, value] : a.scores.items()) {
    if (b.scores.contains(name) && b.scores[name] != value)
      out.changed.push_back({a.custom_id, a.task, a.repeat, name, value, b.scores[name]});
  }
}

void compare_answers(const Answer& a, const Answer& b, RunComparison& out) {
  ++out.answers;
  out.same += a.line == b.line ? 1 : 0;
  out.failed_both += !a.ok && !b.ok ? 1 : 0;
  out.failed_only_a += !a.ok && b.ok ? 1 : 0;
  out.failed_only_b += a.ok && !b.ok ? 1 : 0;
  if (a.ok != b.ok) {
    const auto said = [](const Answer& one) { return one.ok ? Json(true) : one.record["error"]["code"]; };
    out.changed.push_back({a.custom_id, a.task, a.repeat, "ok", said(a), said(b)});
  }
  if (a.ok && b.ok) compare_results(a, b, out);
}

Json optional_number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }

std::string shown(const std::optional<double>& value) {
  return value ? fmt::format("{:.4g}", *value) : std::string("-");
}

Json logprob_json(const LogprobDifference& worst) {
  if (worst.difference < 0) return nullptr;
  return {{"n", worst.n},
          {"difference", worst.difference},
          {"custom_id", worst.custom_id},
          {"repeat", worst.repeat},
          {"place", worst.place},
          {"a", worst.a},
          {"b", worst.b}};
}

std::string logprob_text(const char* name, const LogprobDifference& worst) {
  if (worst.difference < 0) return "";
  if (worst.difference == 0) return fmt::format("largest difference of {}: 0 ({} compared)\n", name, worst.n);
  return fmt::format("largest difference of {}: {:.6g} ({} compared): {} repeat {} {}: {} against {}\n", name,
                     worst.difference, worst.n, json_string(worst.custom_id), worst.repeat, worst.place,
                     json_number(worst.a), json_number(worst.b));
}

}  // namespace

RunComparison compare_runs(const std::string& a, const std::string& b) {
  FinishedRun left(a), right(b);
  const RunLookup lookup(right);
  RunComparison out;
  out.a = a;
  out.b = b;
  for (const auto& [name, value] : left.description()) {
    const auto& others = right.description();
    const auto other = others.find(name);
    const std::string theirs = other == others.end() ? "nothing" : other->second;
    if (theirs != value) out.differences.push_back({name, value, theirs});
  }
  std::map<Key, PairedTest> tests;
  ItemScoresOfBoth items(tests);
  while (const auto answer = left.next()) {
    const auto other = lookup.find(answer->custom_id, answer->repeat);
    require(other.has_value(), ExitCode::usage,
            "{} and {} did not answer the same requests: {} (repeat {}) is in the first alone; compare runs of one "
            "request file",
            a, b, json_string(answer->custom_id), answer->repeat);
    require(answer->record["request_sha256"] == other->record["request_sha256"], ExitCode::usage,
            "{} and {} did not answer the same requests: the lines of {} differ; compare runs of one request file", a,
            b, json_string(answer->custom_id));
    compare_answers(*answer, *other, out);
    items.add(*answer, *other);
  }
  items.finish();
  require(lookup.size() == out.answers, ExitCode::usage,
          "{} and {} did not answer the same requests: the second has {} answers, {} of them are in the first; compare "
          "runs of one request file",
          a, b, lookup.size(), out.answers);
  for (const auto& [key, test] : tests) out.scores.push_back({key.first, key.second, test.result()});
  return out;
}

Json to_json(const RunComparison& comparison) {
  Json json;
  json["schema"] = "bathys.compare.1";
  json["a"] = comparison.a;
  json["b"] = comparison.b;
  json["differences"] = Json::object();
  for (const auto& one : comparison.differences) json["differences"][one.name] = {one.a, one.b};
  json["answers"] = {{"total", comparison.answers},
                     {"same", comparison.same},
                     {"failed_only_in_a", comparison.failed_only_a},
                     {"failed_only_in_b", comparison.failed_only_b},
                     {"failed_in_both", comparison.failed_both}};
  json["texts"] = {{"compared", comparison.texts}, {"different", comparison.other_texts}};
  json["is_greedy"] = {{"compared", comparison.greedy}, {"different", comparison.other_greedy}};
  json["largest_logprob_difference"] = {{"sums", logprob_json(comparison.sums)},
                                        {"tokens", logprob_json(comparison.tokens)}};
  json["scores"] = Json::array();
  for (const ScoreComparison& score : comparison.scores) {
    const PairedResult& r = score.result;
    json["scores"].push_back({{"task", score.task},
                              {"score", score.score},
                              {"n", r.n},
                              {"a", optional_number(r.mean_a)},
                              {"b", optional_number(r.mean_b)},
                              {"difference", optional_number(r.difference)},
                              {"standard_error", optional_number(r.standard_error)},
                              {"higher", r.higher},
                              {"lower", r.lower},
                              {"test", r.test},
                              {"p_value", optional_number(r.p_value)}});
  }
  json["changed"] = Json::array();
  for (const ChangedAnswer& one : comparison.changed) {
    json["changed"].push_back({{"custom_id", one.custom_id},
                               {"repeat", one.repeat},
                               {"task", one.task},
                               {"what", one.what},
                               {"a", one.a},
                               {"b", one.b}});
  }
  return json;
}

std::string to_text(const RunComparison& comparison, std::int64_t max_changed) {
  std::string text = fmt::format("A  {}\nB  {}\n", comparison.a, comparison.b);
  for (const auto& one : comparison.differences) text += fmt::format("  {}: {} | {}\n", one.name, one.a, one.b);
  text += fmt::format("\nanswers {}, equal byte for byte {}; failed only in A {}, only in B {}, in both {}\n",
                      comparison.answers, comparison.same, comparison.failed_only_a, comparison.failed_only_b,
                      comparison.failed_both);
  if (comparison.texts > 0) text += fmt::format("texts {}, different {}\n", comparison.texts, comparison.other_texts);
  if (comparison.greedy > 0)
    text += fmt::format("continuations {}, greedy in one run alone {}\n", comparison.greedy, comparison.other_greedy);
  text += logprob_text("log-probabilities", comparison.sums);
  text += logprob_text("tokens' log-probabilities", comparison.tokens);
  if (!comparison.scores.empty()) {
    text += fmt::format("\n{:<24} {:<22} {:>7} {:>9} {:>9} {:>10} {:>9} {:>7} {:>7} {:>9}  test\n", "task", "score",
                        "n", "A", "B", "B - A", "error", "higher", "lower", "p");
  }
  for (const ScoreComparison& score : comparison.scores) {
    const PairedResult& r = score.result;
    text += fmt::format("{:<24} {:<22} {:>7} {:>9} {:>9} {:>10} {:>9} {:>7} {:>7} {:>9}  {}\n", table_name(score.task),
                        score.score, r.n, shown(r.mean_a), shown(r.mean_b), shown(r.difference),
                        shown(r.standard_error), r.higher, r.lower, shown(r.p_value), r.test);
  }
  const auto n_changed = static_cast<std::int64_t>(comparison.changed.size());
  if (n_changed > 0 && max_changed > 0) text += "\nchanged answers\n";
  for (std::int64_t i = 0; i < std::min(n_changed, max_changed); ++i) {
    const ChangedAnswer& one = comparison.changed[static_cast<std::size_t>(i)];
    text += fmt::format("{} repeat {}: {} {} | {}\n", json_string(one.custom_id), one.repeat, one.what, one.a.dump(),
                        one.b.dump());
  }
  if (n_changed > max_changed) text += fmt::format("{} more; --json lists all of them\n", n_changed - max_changed);
  return text;
}

}  // namespace bathys::eval
