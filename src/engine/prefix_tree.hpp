// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "engine/track.hpp"

#include <cstdint>
#include <memory>
#include <vector>

namespace bathys::engine {

// A beginning that several sequences share: run once as a track of its own, then forked.  It runs the union of its
// descendants' cones: reach is counted to the first row that any of them wants.
struct PrefixNode {
  enum class State { planned, running, ready };

  State state = State::planned;
  PrefixNode* parent = nullptr;  // null: the root, the empty beginning, always ready
  std::vector<std::unique_ptr<PrefixNode>> children;
  std::vector<Track*> waiting;  // tracks that will fork here, in order of submission
  Track track;                  // tokens from position 0 to end
  int users = 0;                // tracks forked here and not ended, and children that run or are ready
  bool many_jobs = false;       // several jobs meet here, so that more may come
  std::uint64_t first_job = 0;  // number of the first
  std::uint64_t last_use = 0;

  [[nodiscard]] std::int64_t end() const { return track.end; }
  // Nothing that is known needs it any more.
  [[nodiscard]] bool idle() const {
    return state == State::ready && waiting.empty() && children.empty() && users == 0 && parent != nullptr;
  }
};

// The beginnings that sequences not yet started have in common, among themselves and with those still held.  Knows
// tokens and positions; who runs what is the engine's.
class PrefixTree {
 public:
  PrefixTree();

  [[nodiscard]] PrefixNode& root() { return root_; }

  // Finds a track's place: below the longest beginning that it shares with another waiting track or with a node whose
  // rows serve it.  Cuts nodes that have not started; a beginning is worth a node from kMinShared rows on.
  void insert(Track& track);
  // The track will compute all its rows itself.  Planned nodes that only it needed are gone.
  void detach(Track& track);
  // The track has started: it waits no longer.
  void remove(Track& track);
  // Detaches all tracks waiting at a node or below it, and takes the node out.
  std::unique_ptr<PrefixNode> dissolve(PrefixNode& node);
  // Takes out a node that has no descendants.
  std::unique_ptr<PrefixNode> erase(PrefixNode& node);

  // The idle node that was used longest ago, null if there is none.  Nodes on the way to `keep` are left out.
  [[nodiscard]] PrefixNode* oldest_idle(const PrefixNode& keep);
  // A ready node that no other track or node was forked from, whoever waits there: its rows can be given up and run
  // again.  Nodes on the way to `keep` are left out.
  [[nodiscard]] PrefixNode* unused(const PrefixNode& keep);
  // What giving up nodes as those two name them, until neither names any, would set free; `also_unused`: with the
  // second, else with the first alone.
  [[nodiscard]] Room reclaimable(const PrefixNode& keep, bool also_unused) const;

  static constexpr std::int64_t kMinShared = 8;

 private:
  void move_to_root(Track& track);
  PrefixNode& split(PrefixNode& node, std::int64_t at);
  PrefixNode& branch(PrefixNode& parent, const Track& like, std::int64_t end);

  PrefixNode root_;
};

// Whether `node` lies on the way from the root to `other` (or is it).
[[nodiscard]] bool leads_to(const PrefixNode& node, const PrefixNode& other);

}  // namespace bathys::engine
