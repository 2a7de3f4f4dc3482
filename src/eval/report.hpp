// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "eval/journal.hpp"
#include "eval/run_folder.hpp"
#include "eval/scores.hpp"

#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace bathys::eval {

// Seconds of one phase over the ranks of a start.
struct PhaseSpread {
  std::string name;
  double min = 0, median = 0, max = 0;
};
[[nodiscard]] std::vector<PhaseSpread> spread_over_ranks(const std::vector<PhaseSeconds>& ranks);

// Everything that a report says.
struct RunReport {
  RunIdentity identity;
  std::vector<std::pair<std::string, std::string>> options;  // what changes no number: layout, row budget, ..
  std::string first_start, finished;
  int starts = 1;
  RunTotals totals;
  std::vector<std::pair<std::string, std::vector<Score>>> tasks;
  Progress all_starts;                       // all groups', over all starts whose journals are there
  std::vector<PhaseSpread> last_start;       // empty when nothing was computed
  [[nodiscard]] std::int64_t ranks() const;  // of the last start: its option; 0 where it has none
};

// A task as a row of a table names it: control characters escaped, shortened where it is a text.
[[nodiscard]] std::string table_name(const std::string& task);

[[nodiscard]] Json to_json(const RunReport& report);
// The table for people, ready to print.
[[nodiscard]] std::string to_table(const RunReport& report);

}  // namespace bathys::eval
