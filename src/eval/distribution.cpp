// SPDX-License-Identifier: Apache-2.0
#include "eval/distribution.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

namespace bathys::eval {
namespace {

constexpr std::array<std::pair<const char*, int>, 4> kPercentiles = {
    {{"p50", 50}, {"p90", 90}, {"p95", 95}, {"p99", 99}}};

}  // namespace

Json Distribution::to_json() const {
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const std::size_t n = sorted.size();
  Json json = {{"n", n}, {"mean", nullptr}, {"min", nullptr}};
  for (const auto& [name, percent] : kPercentiles) json[name] = nullptr;
  json["max"] = nullptr;
  if (n == 0) return json;
  json["mean"] = std::accumulate(sorted.begin(), sorted.end(), 0.0) / static_cast<double>(n);
  json["min"] = sorted.front();
  for (const auto& [name, percent] : kPercentiles) {
    const std::size_t rank = (n * static_cast<std::size_t>(percent) + 99) / 100;  // 1 .. n
    json[name] = sorted[rank - 1];
  }
  json["max"] = sorted.back();
  return json;
}

}  // namespace bathys::eval
