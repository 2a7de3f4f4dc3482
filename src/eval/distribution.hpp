// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"

#include <cstdint>
#include <vector>

namespace bathys::eval {

// Values of one kind, for their spread: mean, extremes and percentiles (nearest rank: the smallest value that at least
// so many percent of the values do not exceed).
class Distribution {
 public:
  void add(double value) { values_.push_back(value); }
  [[nodiscard]] std::int64_t n() const { return static_cast<std::int64_t>(values_.size()); }
  // {n, mean, min, p50, p90, p95, p99, max}; all but n are null without values.
  [[nodiscard]] Json to_json() const;

 private:
  std::vector<double> values_;
};

}  // namespace bathys::eval
