// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "model/cone.hpp"

#include <vector>

namespace bathys::eval {

// Rows through each layer: those that the requests need, each by itself, and those that were computed, shared ones once
// and, with --cone off, all.
struct LayerRows {
  std::vector<model::LayerCounters> needed, computed;  // by layer

  void add(const LayerRows& other);
  // [[needed source, window, full, computed source, window, full], ..] for the journal, and back.
  [[nodiscard]] Json to_journal() const;
  [[nodiscard]] static LayerRows from_journal(const Json& json);
  // [{"layer", "source": {"needed", "computed"}, "window": .., "full": ..}, ..] for reports.
  [[nodiscard]] Json to_report() const;
};

}  // namespace bathys::eval
