// SPDX-License-Identifier: Apache-2.0
#include "parallel/rank_grid.hpp"

#include "core/error.hpp"
#include "core/json.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace bathys::parallel {
namespace {

constexpr const char* kForm = "replicas=R,groups=G,tensor=T";

int parse_count(std::string_view name, std::string_view text, std::string_view whole) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  require(error == std::errc() && end == text.data() + text.size() && value >= 1, ExitCode::usage,
          "--layout {}: {} is \"{}\", expected a number from 1 on; the form is {}", whole, name, text, kForm);
  return value;
}

std::string divisors(std::int64_t n) {
  std::string text;
  for (std::int64_t d = 1; d <= n; ++d) {
    if (n % d == 0) text += fmt::format("{}{}", text.empty() ? "" : ", ", d);
  }
  return text;
}

}  // namespace

std::string to_string(const Layout& layout) {
  return fmt::format("replicas={},groups={},tensor={}", layout.replicas, layout.groups, layout.tensor);
}

Layout parse_layout(std::string_view text) {
  Layout layout;
  const std::array<std::pair<std::string_view, int*>, 3> parts = {
      {{"replicas", &layout.replicas}, {"groups", &layout.groups}, {"tensor", &layout.tensor}}};
  std::array<bool, 3> seen = {};
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t comma = std::min(text.find(',', begin), text.size());
    const std::string_view part = text.substr(begin, comma - begin);
    const std::size_t equals = part.find('=');
    require(equals != std::string_view::npos, ExitCode::usage, "--layout {}: \"{}\" has no value; the form is {}", text,
            part, kForm);
    const std::string_view name = part.substr(0, equals);
    std::size_t which = 0;
    while (which < parts.size() && parts[which].first != name) ++which;
    if (which == parts.size()) {
      const std::string near = nearest_name(name, {"replicas", "groups", "tensor"});
      fail(ExitCode::usage, "--layout {}: \"{}\" is unknown{}; the form is {}", text, name,
           near.empty() ? std::string() : fmt::format(", did you mean {}", near), kForm);
    }
    require(!seen[which], ExitCode::usage, "--layout {}: {} stands twice", text, name);
    seen[which] = true;
    *parts[which].second = parse_count(name, part.substr(equals + 1), text);
    begin = comma + 1;
  }
  return layout;
}

Layout choose_layout(std::string_view text, int world, std::int64_t o_groups, std::int64_t experts) {
  const Layout layout = text.empty() ? Layout{1, 1, world} : parse_layout(text);
  // Factors beyond the world are refused before they are multiplied.
  const bool each_fits = layout.replicas <= world && layout.groups <= world && layout.tensor <= world;
  require(each_fits && std::int64_t{layout.replicas} * layout.groups * layout.tensor == world, ExitCode::usage,
          "--layout {}: the product must be the number of ranks, which is {}; change the layout or start as many ranks",
          to_string(layout), world);
  require(o_groups > 0 && o_groups % layout.tensor == 0, ExitCode::usage,
          "the model cannot be cut over {} tensor ranks: it has {} output groups, so tensor is one of {}; start that "
          "many ranks, or give a --layout with replicas or groups",
          layout.tensor, o_groups, divisors(o_groups));
  const int replica_ranks = layout.groups * layout.tensor;
  require(replica_ranks <= experts, ExitCode::usage,
          "--layout {}: a replica of {} ranks shares out the model's {} routed experts, so some rank would have none; "
          "use more replicas of at most {} ranks",
          to_string(layout), replica_ranks, experts, experts);
  return layout;
}

RankGrid make_rank_grid(Collectives& world, const Layout& layout) {
  require(layout.replicas * layout.groups * layout.tensor == world.size(), ExitCode::internal,
          "a grid of {} over {} ranks", to_string(layout), world.size());
  RankGrid grid;
  const int rank = world.rank();
  grid.layout = layout;
  grid.tensor_id = rank % layout.tensor;
  grid.group_id = rank / layout.tensor % layout.groups;
  grid.replica_id = rank / (layout.tensor * layout.groups);
  grid.replica = world.split(grid.replica_id, rank);
  grid.tensor = grid.replica->split(grid.group_id, rank);
  grid.peers = grid.replica->split(grid.tensor_id, rank);
  grid.copies = world.split(rank % (layout.tensor * layout.groups), rank);
  return grid;
}

}  // namespace bathys::parallel
