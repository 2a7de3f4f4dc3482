// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/collectives.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace bathys::parallel {

// How the world is cut: world = replicas x groups x tensor.  Ranks count tensor fastest, then group, then replica.  A
// replica holds the whole model (experts and Engram rows are cut over all its ranks), a group takes its own sequences,
// heads and output groups are cut over its tensor ranks.
struct Layout {
  int replicas = 1;
  int groups = 1;
  int tensor = 1;
  friend bool operator==(const Layout&, const Layout&) = default;
};

[[nodiscard]] std::string to_string(const Layout& layout);  // "replicas=1,groups=1,tensor=4"

// Reads `replicas=R,groups=G,tensor=T`: any order, each at most once, a missing one is 1.
//   throws Error(usage) naming the part that is wrong
[[nodiscard]] Layout parse_layout(std::string_view text);

// The layout for `world` ranks: that of `text`, or, when it is empty, all ranks in one tensor group.
//   throws Error(usage) unless the product is `world`, `tensor` divides `o_groups`, and every rank of a replica gets
//   one of the `experts` at least
[[nodiscard]] Layout choose_layout(std::string_view text, int world, std::int64_t o_groups, std::int64_t experts);

// The groups that this rank belongs to, cut out of the world.
struct RankGrid {
  Layout layout;
  int replica_id = 0, group_id = 0, tensor_id = 0;  // this rank's place
  std::unique_ptr<Collectives> replica;             // groups * tensor ranks: experts, Engram rows
  std::unique_ptr<Collectives> tensor;              // tensor ranks of one group: heads, output groups, vocabulary
  std::unique_ptr<Collectives> peers;               // one rank of each group of the replica, with this tensor id
  std::unique_ptr<Collectives> copies;              // one rank of each replica, with this place in it
};

// Collective over `world`, whose size is the layout's product.
[[nodiscard]] RankGrid make_rank_grid(Collectives& world, const Layout& layout);

}  // namespace bathys::parallel
