// SPDX-License-Identifier: Apache-2.0
#include "engine/prefix_tree.hpp"

#include <algorithm>
#include <utility>

namespace bathys::engine {
namespace {

// First position from `from` on, at most `limit`, where the two differ.
std::int64_t matching(const std::vector<std::int32_t>& a, const std::vector<std::int32_t>& b, std::int64_t from,
                      std::int64_t limit) {
  const auto begin = a.begin() + from;
  return from + (std::mismatch(begin, a.begin() + limit, b.begin() + from).first - begin);
}

// Rows that a track can take from elsewhere: the wanted ones stay its own, so that a prefix asks nothing of the head.
std::int64_t shareable(const Track& track) { return track.wanted_from; }

// Whether the rows that a node runs, or has run, hold all that the track needs of them.
bool serves(const PrefixNode& node, const Track& track) {
  return node.state == PrefixNode::State::planned || track.wanted_from >= node.track.first_wanted;
}

void meet(PrefixNode& node, const Track& track) {
  if (node.state == PrefixNode::State::planned)
    node.track.first_wanted = std::min(node.track.first_wanted, track.wanted_from);
  node.many_jobs = node.many_jobs || node.first_job != track.job->number;
}

// A node below `parent` for the first `end` tokens of a track.
std::unique_ptr<PrefixNode> planned(PrefixNode& parent, const Track& like, std::int64_t end) {
  auto node = std::make_unique<PrefixNode>();
  node->parent = &parent;
  node->track.kind = Track::Kind::prefix;
  node->track.node = node.get();
  node->track.tokens.assign(like.tokens.begin(), like.tokens.begin() + end);
  node->track.end = node->track.full_length = end;
  node->track.first_wanted = like.first_wanted;
  return node;
}

template <class Visit>
void each_node(PrefixNode& node, const Visit& visit) {
  for (const auto& child : node.children) {
    visit(*child);
    each_node(*child, visit);
  }
}

// Room of what can be given up, from the leaves on: a node that goes is one user less of its parent.
struct Reclaim {
  const PrefixNode& keep;
  bool also_unused = false;
  Room room;

  enum class Fate { stays, unused, idle };
  Fate visit(const PrefixNode& node) {
    int left = node.users;
    bool childless = true;
    for (const auto& child : node.children) {
      const Fate fate = visit(*child);
      if (fate != Fate::stays) --left;
      childless = childless && fate == Fate::idle;
    }
    if (node.state != PrefixNode::State::ready || left > 0 || leads_to(node, keep)) return Fate::stays;
    const bool idle = childless && node.waiting.empty();
    if (!idle && !also_unused) return Fate::stays;
    room += node.track.room;
    return idle ? Fate::idle : Fate::unused;
  }
};

}  // namespace

bool leads_to(const PrefixNode& node, const PrefixNode& other) {
  for (const PrefixNode* n = &other; n != nullptr; n = n->parent) {
    if (n == &node) return true;
  }
  return false;
}

PrefixTree::PrefixTree() { root_.state = PrefixNode::State::ready; }

void PrefixTree::insert(Track& track) {
  PrefixNode* node = &root_;
  while (true) {
    const std::int64_t from = node->end();
    if (track.alone || shareable(track) < from + kMinShared) break;
    PrefixNode* best = nullptr;
    std::int64_t length = from + kMinShared - 1;
    for (const auto& child : node->children) {
      const std::int64_t m =
          matching(child->track.tokens, track.tokens, from, std::min(child->end(), shareable(track)));
      if (m > length && serves(*child, track) && (m == child->end() || child->state == PrefixNode::State::planned)) {
        best = child.get();
        length = m;
      }
    }
    Track* sibling = nullptr;
    for (Track* other : node->waiting) {
      if (other->alone) continue;
      const std::int64_t m = matching(other->tokens, track.tokens, from, std::min(shareable(*other), shareable(track)));
      if (m > length) {
        sibling = other;
        length = m;
      }
    }
    if (sibling != nullptr) {
      PrefixNode& shared = branch(*node, *sibling, length);
      std::erase(node->waiting, sibling);
      shared.waiting.push_back(sibling);
      sibling->node = &shared;
      node = &shared;
    } else if (best != nullptr) {
      node = length == best->end() ? best : &split(*best, length);
    } else {
      break;
    }
    meet(*node, track);
    if (sibling != nullptr) break;
  }
  track.node = node;
  node->waiting.push_back(&track);
}

// A planned node for the first `end` tokens of `like`.
PrefixNode& PrefixTree::branch(PrefixNode& parent, const Track& like, std::int64_t end) {
  PrefixNode& node = *parent.children.emplace_back(planned(parent, like, end));
  node.first_job = like.job->number;
  return node;
}

// Puts a planned node of length `at` above a planned one.
PrefixNode& PrefixTree::split(PrefixNode& node, std::int64_t at) {
  PrefixNode& parent = *node.parent;
  const auto place = std::find_if(parent.children.begin(), parent.children.end(),
                                  [&](const auto& child) { return child.get() == &node; });
  std::unique_ptr<PrefixNode> upper = planned(parent, node.track, at);
  upper->first_job = node.first_job;
  upper->many_jobs = node.many_jobs;
  node.parent = upper.get();
  upper->children.push_back(std::move(*place));
  *place = std::move(upper);
  return **place;
}

void PrefixTree::move_to_root(Track& track) {
  remove(track);
  track.alone = true;
  track.node = &root_;
  root_.waiting.push_back(&track);
}

void PrefixTree::detach(Track& track) {
  PrefixNode* node = track.node;
  move_to_root(track);
  while (node->state == PrefixNode::State::planned && node->waiting.empty() && node->children.empty()) {
    PrefixNode* const parent = node->parent;
    erase(*node);
    node = parent;
  }
}

void PrefixTree::remove(Track& track) { std::erase(track.node->waiting, &track); }

std::unique_ptr<PrefixNode> PrefixTree::dissolve(PrefixNode& node) {
  while (!node.children.empty()) dissolve(*node.children.front());
  while (!node.waiting.empty()) move_to_root(*node.waiting.front());
  return erase(node);
}

std::unique_ptr<PrefixNode> PrefixTree::erase(PrefixNode& node) {
  auto& siblings = node.parent->children;
  const auto place =
      std::find_if(siblings.begin(), siblings.end(), [&](const auto& child) { return child.get() == &node; });
  std::unique_ptr<PrefixNode> taken = std::move(*place);
  siblings.erase(place);
  return taken;
}

PrefixNode* PrefixTree::oldest_idle(const PrefixNode& keep) {
  PrefixNode* oldest = nullptr;
  each_node(root_, [&](PrefixNode& node) {
    if (node.idle() && !leads_to(node, keep) && (oldest == nullptr || node.last_use < oldest->last_use)) oldest = &node;
  });
  return oldest;
}

PrefixNode* PrefixTree::unused(const PrefixNode& keep) {
  PrefixNode* found = nullptr;
  each_node(root_, [&](PrefixNode& node) {
    if (node.state == PrefixNode::State::ready && node.users == 0 && !leads_to(node, keep)) found = &node;
  });
  return found;
}

Room PrefixTree::reclaimable(const PrefixNode& keep, bool also_unused) const {
  Reclaim reclaim{keep, also_unused, {}};
  reclaim.visit(root_);  // which leads to every node and stays
  return reclaim.room;
}

}  // namespace bathys::engine
