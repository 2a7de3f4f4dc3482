// SPDX-License-Identifier: Apache-2.0
#include "eval/layer_rows.hpp"

#include <algorithm>

namespace bathys::eval {
namespace {

void add_counters(std::vector<model::LayerCounters>& to, const std::vector<model::LayerCounters>& from) {
  to.resize(std::max(to.size(), from.size()));
  for (std::size_t l = 0; l < from.size(); ++l) {
    to[l].source_rows += from[l].source_rows;
    to[l].window_rows += from[l].window_rows;
    to[l].full_rows += from[l].full_rows;
  }
}

}  // namespace

void LayerRows::add(const LayerRows& other) {
  add_counters(needed, other.needed);
  add_counters(computed, other.computed);
}

Json LayerRows::to_journal() const {
  Json layers = Json::array();
  for (std::size_t l = 0; l < needed.size(); ++l) {
    layers.push_back({needed[l].source_rows, needed[l].window_rows, needed[l].full_rows, computed[l].source_rows,
                      computed[l].window_rows, computed[l].full_rows});
  }
  return layers;
}

LayerRows LayerRows::from_journal(const Json& json) {
  LayerRows rows;
  for (const Json& layer : json) {
    const auto at = [&](std::size_t i) { return layer.at(i).get<std::int64_t>(); };
    rows.needed.push_back({at(0), at(1), at(2)});
    rows.computed.push_back({at(3), at(4), at(5)});
  }
  return rows;
}

Json LayerRows::to_report() const {
  Json layers = Json::array();
  for (std::size_t l = 0; l < needed.size(); ++l) {
    const auto pair = [](std::int64_t need, std::int64_t done) { return Json{{"needed", need}, {"computed", done}}; };
    layers.push_back({{"layer", l},
                      {"source", pair(needed[l].source_rows, computed[l].source_rows)},
                      {"window", pair(needed[l].window_rows, computed[l].window_rows)},
                      {"full", pair(needed[l].full_rows, computed[l].full_rows)}});
  }
  return layers;
}

}  // namespace bathys::eval
