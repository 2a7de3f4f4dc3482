// SPDX-License-Identifier: Apache-2.0
#include "eval/report.hpp"

#include "core/shown.hpp"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

constexpr const char* kCovers = "all groups, all starts";

Json optional_number(const std::optional<double>& value) { return value ? Json(*value) : Json(nullptr); }
std::string shown(const std::optional<double>& value) { return value ? fmt::format("{:.4f}", *value) : "-"; }
std::optional<double> rate(std::int64_t count, double seconds) {
  if (count == 0 || seconds <= 0) return std::nullopt;
  return static_cast<double>(count) / seconds;
}
double rounded(double seconds) { return std::round(seconds * 1e6) / 1e6; }

struct Phase {
  const char* name;
  double PhaseSeconds::*seconds;
};
constexpr Phase kPhases[] = {{"load", &PhaseSeconds::load_s},       {"prepare", &PhaseSeconds::prepare_s},
                             {"prefill", &PhaseSeconds::prefill_s}, {"decode", &PhaseSeconds::decode_s},
                             {"write", &PhaseSeconds::write_s},     {"total", &PhaseSeconds::total_s}};

Json counts_json(const RunTotals& totals) {
  Json counts;
  counts["total"] = totals.total;
  counts["done"] = totals.done;
  counts["failed"] = totals.failed;
  counts["failed_by_code"] = Json::object();
  for (const auto& [code, n] : totals.failed_by_code) counts["failed_by_code"][code] = n;
  counts["truncated"] = totals.truncated;
  counts["in_thinking"] = totals.in_thinking;
  counts["finish_reasons"] = Json::object();
  for (const auto& [reason, n] : totals.finish_reasons) counts["finish_reasons"][reason] = n;
  return counts;
}

Json tasks_json(const RunReport& report) {
  Json::object_t tasks;  // a vector of pairs: there may be as many tasks as requests, none twice
  for (const auto& [task, scores] : report.tasks) {
    Json entry = Json::object();
    for (const Score& score : scores) {
      entry[score.name] = {{"n", score.n},
                           {"mean", optional_number(score.value)},
                           {"standard_error", optional_number(score.standard_error)}};
    }
    tasks.emplace_back(task, std::move(entry));
  }
  return tasks;
}

Json speed_json(const RunReport& report) {
  Json speed;
  speed["covers"] = kCovers;
  for (const Phase& phase : kPhases) speed["seconds"][phase.name] = rounded(report.all_starts.*phase.seconds);
  speed["prefill_rows"] = report.all_starts.prefill_rows;
  speed["decode_rows"] = report.all_starts.decode_rows;
  speed["prefill_rows_per_s"] = optional_number(rate(report.all_starts.prefill_rows, report.all_starts.prefill_s));
  speed["decode_rows_per_s"] = optional_number(rate(report.all_starts.decode_rows, report.all_starts.decode_s));
  const double total_s = report.all_starts.total_s;
  const auto per_s = [&](std::int64_t count) { return rate(count, total_s); };
  const RunTotals& totals = report.totals;
  speed["answers_per_s"] = optional_number(per_s(totals.done + totals.failed));
  for (const auto& [name, count] :
       {std::pair("scored_tokens", totals.scored_tokens), std::pair("generated_tokens", totals.generated_tokens)}) {
    speed[std::string(name) + "_per_s"] = optional_number(per_s(count));
    const auto value = per_s(count);
    speed[std::string(name) + "_per_s_and_rank"] =
        value && report.ranks() > 0 ? Json(*value / static_cast<double>(report.ranks())) : Json(nullptr);
  }
  speed["last_start_over_ranks"] = Json::object();
  for (const PhaseSpread& spread : report.last_start) {
    speed["last_start_over_ranks"][spread.name] = {
        {"min_s", rounded(spread.min)}, {"median_s", rounded(spread.median)}, {"max_s", rounded(spread.max)}};
  }
  return speed;
}

}  // namespace

std::string table_name(const std::string& task) {
  constexpr std::size_t kLongest = 100;
  return task.empty() ? "(no task)" : printable(task, kLongest);
}

std::vector<PhaseSpread> spread_over_ranks(const std::vector<PhaseSeconds>& ranks) {
  std::vector<PhaseSpread> out;
  for (const Phase& phase : kPhases) {
    std::vector<double> seconds;
    seconds.reserve(ranks.size());
    for (const PhaseSeconds& rank : ranks) seconds.push_back(rank.*phase.seconds);
    std::sort(seconds.begin(), seconds.end());
    const std::size_t middle = seconds.size() / 2;
    const double median = seconds.size() % 2 == 1 ? seconds[middle] : (seconds[middle - 1] + seconds[middle]) / 2;
    out.push_back({phase.name, seconds.front(), median, seconds.back()});
  }
  return out;
}

std::int64_t RunReport::ranks() const {
  for (const auto& [name, value] : options) {
    if (name == "ranks") return std::stoll(value);
  }
  return 0;
}

Json to_json(const RunReport& report) {
  Json json;
  json["schema"] = "bathys.summary.1";
  for (const auto& [key, value] : report.identity) json["identity"][key] = value;
  for (const auto& [key, value] : report.options) json["options"][key] = value;
  json["first_start"] = report.first_start;
  json["finished"] = report.finished;
  json["restarts"] = report.starts - 1;
  json["counts"] = counts_json(report.totals);
  json["requests"] = report.totals.requests.to_json();
  json["layer_rows"] = report.all_starts.layers.to_report();
  json["tokens"] = {{"prompt", report.totals.prompt_tokens},
                    {"scored", report.totals.scored_tokens},
                    {"generated", report.totals.generated_tokens},
                    {"reasoning", report.totals.reasoning_tokens}};
  json["lengths"] = {{"prompt_tokens", report.totals.prompt_lengths.to_json()},
                     {"completion_tokens", report.totals.completion_lengths.to_json()}};
  json["latency_s"] = report.totals.latency_s.to_json();
  json["tasks"] = tasks_json(report);
  json["speed"] = speed_json(report);
  return json;
}

std::string to_table(const RunReport& report) {
  std::string text =
      fmt::format("\n{:<28} {:<18} {:>8} {:>14} {:>16}\n", "task", "score", "n", "value", "standard error");
  for (const auto& [task, scores] : report.tasks) {
    const std::string name = table_name(task);
    for (const Score& score : scores) {
      text += fmt::format("{:<28} {:<18} {:>8} {:>14} {:>16}\n", name, score.name, score.n, shown(score.value),
                          shown(score.standard_error));
    }
    if (scores.empty()) text += fmt::format("{:<28} {:<18} {:>8} {:>14} {:>16}\n", name, "-", "-", "-", "-");
  }
  const RunTotals& totals = report.totals;
  text += fmt::format("\nanswers  {} of {} done, {} failed\n", totals.done, totals.total, totals.failed);
  for (const auto& [code, n] : totals.failed_by_code) text += fmt::format("  {:<24} {}\n", code, n);
  text += fmt::format("tokens   prompt {}, scored {}, generated {}\n", totals.prompt_tokens, totals.scored_tokens,
                      totals.generated_tokens);
  const auto speed = [](std::int64_t rows, double seconds) {
    const auto value = rate(rows, seconds);
    return value ? fmt::format("{:.1f} tokens/s", *value) : std::string("-");
  };
  text += fmt::format("speed    prefill {}, decode {} ({})\n",
                      speed(report.all_starts.prefill_rows, report.all_starts.prefill_s),
                      speed(report.all_starts.decode_rows, report.all_starts.decode_s), kCovers);
  const Json latency = totals.latency_s.to_json();
  if (totals.latency_s.n() > 0) {
    text += fmt::format("latency  median {:.3f} s, 95 % below {:.3f} s, most {:.3f} s\n", latency["p50"].get<double>(),
                        latency["p95"].get<double>(), latency["max"].get<double>());
  }
  if (!report.last_start.empty()) {
    text += fmt::format("\n{:<10} {:>10} {:>10} {:>10}   seconds over the ranks, this start\n", "phase", "min",
                        "median", "max");
    for (const PhaseSpread& spread : report.last_start) {
      text += fmt::format("{:<10} {:>10.3f} {:>10.3f} {:>10.3f}\n", spread.name, spread.min, spread.median, spread.max);
    }
  }
  return text;
}

}  // namespace bathys::eval
