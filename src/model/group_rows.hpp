// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/step_plan.hpp"
#include "parallel/collectives.hpp"

#include <cstdint>
#include <span>
#include <vector>

namespace bathys::model {

// How many rows each group of the replica has at each layer of one step.  Groups take different sequences and so have
// different cones; but experts and n-gram tables are cut over all of them, so each must know what the others bring.
class GroupRows {
 public:
  struct Split {
    std::vector<std::int64_t> rows_of;  // by group
    std::int64_t total = 0;
    std::int64_t first = 0;  // where this group's rows begin among all
  };

  // peers: one rank of each group; outlives this.
  GroupRows(parallel::Collectives& peers, int n_layers);

  // Takes this group's numbers from `plan` and the others' from their ranks.  Collective over the peers.
  void share(const StepPlan& plan);

  // Rows whose stream is at hand when the layer begins, and those that it runs in full.
  [[nodiscard]] const Split& stream(int layer) const { return splits_[static_cast<std::size_t>(layer)]; }
  [[nodiscard]] const Split& full(int layer) const { return splits_[static_cast<std::size_t>(layer) + 1]; }

  // The rows of all groups, in their order: all [split.total, m] out of mine [n, m].  With one group that is `mine`
  // itself.  Collective over the peers.
  template <class T>
  kernels::Mat<const T> gather(const Exec& exec, const Split& split, const kernels::Mat<const T>& mine,
                               const kernels::Mat<T>& all) const {
    if (split.rows_of.size() == 1) return mine;
    gather_bytes(exec, split, static_cast<std::int64_t>(all.extent(1) * sizeof(T)), mine.data(), all.data());
    return kernels::first_rows(all, split.total);
  }
  // This group's rows of those of all groups.
  template <class T>
  [[nodiscard]] static kernels::Mat<T> own(const Split& split, std::int64_t n, const kernels::Mat<T>& all) {
    return kernels::Mat<T>(Kokkos::subview(all, Kokkos::make_pair(split.first, split.first + n), Kokkos::ALL));
  }

 private:
  void gather_bytes(const Exec& exec, const Split& split, std::int64_t row_bytes, const void* mine, void* all) const;

  parallel::Collectives& peers_;
  std::vector<Split> splits_;  // the step's rows, then the full rows of each layer
};

}  // namespace bathys::model
