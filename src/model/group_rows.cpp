// SPDX-License-Identifier: Apache-2.0
#include "model/group_rows.hpp"

#include <cstddef>

namespace bathys::model {

GroupRows::GroupRows(parallel::Collectives& peers, int n_layers)
    : peers_(peers), splits_(static_cast<std::size_t>(n_layers) + 1) {
  for (Split& split : splits_) split.rows_of.resize(static_cast<std::size_t>(peers.size()));
}

void GroupRows::share(const StepPlan& plan) {
  const std::size_t groups = static_cast<std::size_t>(peers_.size()), entries = splits_.size();
  std::vector<std::int64_t> mine = {plan.rows()}, all(groups * entries);
  for (std::size_t layer = 0; layer + 1 < entries; ++layer) mine.push_back(plan.layer(static_cast<int>(layer)).full);
  const std::vector<std::int64_t> bytes_of(groups, static_cast<std::int64_t>(entries * sizeof(std::int64_t)));
  peers_.all_gather_v_host(mine.data(), all.data(), bytes_of);
  for (std::size_t entry = 0; entry < entries; ++entry) {
    Split& split = splits_[entry];
    split.total = 0;
    for (std::size_t group = 0; group < groups; ++group) {
      if (group == static_cast<std::size_t>(peers_.rank())) split.first = split.total;
      split.rows_of[group] = all[group * entries + entry];
      split.total += split.rows_of[group];
    }
  }
}

void GroupRows::gather_bytes(const Exec& exec, const Split& split, std::int64_t row_bytes, const void* mine,
                             void* all) const {
  std::vector<std::int64_t> bytes_of = split.rows_of;
  for (std::int64_t& rows : bytes_of) rows *= row_bytes;
  peers_.all_gather_v(exec, mine, all, bytes_of);
}

}  // namespace bathys::model
