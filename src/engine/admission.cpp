// SPDX-License-Identifier: Apache-2.0
// Who starts when: sequences within their room, beginnings before those that fork from them.
#include "core/error.hpp"
#include "engine/engine_state.hpp"

#include <iterator>

namespace bathys::engine {

// As many as the next step has rows for.  Tracks start in order, and none overtakes one that waits for room; one that
// waits for its beginning lets others pass.
void Engine::State::admit() {
  std::int64_t rows = 0;
  for (const Track* const track : alive) rows += track->rows_left();
  for (auto next = waiting.begin(); next != waiting.end() && rows < options.row_budget;) {
    const std::size_t before = alive.size();
    Start outcome = try_start(**next);
    // Nothing runs that would make room by its end, and the beginnings that it forks from lie in the way: without them
    // there is room for whatever fits alone.
    if (outcome == Start::no_room && alive.empty() && (*next)->node->parent != nullptr) {
      tree.detach(**next);
      outcome = try_start(**next);
    }
    if (alive.size() > before) rows += alive.back()->rows_left();
    if (outcome == Start::no_room) return;
    next = outcome == Start::started ? waiting.erase(next) : std::next(next);
  }
}

Engine::State::Start Engine::State::try_start(Track& track) {
  if (!path_fits(track)) tree.detach(track);
  PrefixNode& node = *track.node;
  if (node.state != PrefixNode::State::ready) {
    PrefixNode* first = &node;
    while (first->parent->state != PrefixNode::State::ready) first = first->parent;
    return first->state == PrefixNode::State::running ? Start::later : start_node(*first, track);
  }
  // The only one left of one job takes the beginning over; where several jobs meet more may come.
  const bool last =
      node.parent != nullptr && !node.many_jobs && node.waiting.size() == 1 && node.children.empty() && node.users == 0;
  const Room room = room_of(track.full_length, last ? *node.parent : node);
  const Room more = last ? room - node.track.room : room;
  if (!make_room(more, node)) return Start::no_room;
  occupy(more);
  tree.remove(track);
  track.shared = node.end();
  node.last_use = ++n_uses;
  if (last) {
    track.node = node.parent;  // whose user it becomes in the node's place
    model::Sequence sequence = std::move(node.track.sequence);
    tree.erase(node);
    launch(track, room, std::move(sequence));
  } else {
    ++node.users;
    launch(track, room, node.parent == nullptr ? model.caches().make() : model.fork(node.track.sequence));
  }
  return Start::started;
}

Engine::State::Start Engine::State::start_node(PrefixNode& node, Track& first) {
  PrefixNode& parent = *node.parent;
  const Room room = room_of(node.end(), parent);
  if (!make_room(room, node)) return Start::no_room;
  occupy(room);
  node.state = PrefixNode::State::running;
  node.track.job = first.job;
  ++parent.users;
  launch(node.track, room, parent.parent == nullptr ? model.caches().make() : model.fork(parent.track.sequence));
  return Start::later;
}

void Engine::State::launch(Track& track, const Room& room, model::Sequence sequence) {
  track.sequence = std::move(sequence);
  track.room = room;
  if (track.kind != Track::Kind::prefix) track.forget_shared();  // a beginning may be run again, and is compared with
  alive.push_back(&track);
}

// Before any of it is taken, and when none is any more.
void Engine::State::occupy(const Room& room) {
  used += room;
  model.caches().promise(used);
}

void Engine::State::vacate(const Room& room) {
  used -= room;
  model.caches().promise(used);
}

// What a sequence adds to the node that it forks from: the full pages of the beginning are shared.
Room Engine::State::room_of(std::int64_t length, const PrefixNode& from) const {
  return model.caches().blocks_for(length) - model.caches().shared_blocks(from.end());
}

// Whether a track and all beginnings that it needs can be held at once.
bool Engine::State::path_fits(const Track& track) const {
  Room room = room_of(track.full_length, *track.node);
  for (const PrefixNode* node = track.node; node->parent != nullptr; node = node->parent)
    room += room_of(node->end(), *node->parent);
  return fits(room) || track.node->parent == nullptr;
}

bool Engine::State::fits(const Room& room) const {
  return room.states <= options.max_sequences &&
         (options.cache_bytes == 0 || model.caches().bytes_of(room) <= options.cache_bytes);
}

// Gives up beginnings that nothing needs and, where nothing runs that could end, also those that somebody waits for:
// they are run again, which changes no number.  What leads to `keep` stays.  Gives up none where all would not do.
bool Engine::State::make_room(const Room& wanted, const PrefixNode& keep) {
  const auto there = [&] { return fits(used + wanted) && model.caches().make_room(used + wanted); };
  if (there()) return true;
  if (!fits(used + wanted - tree.reclaimable(keep, alive.empty()))) return false;
  while (!there()) {
    if (PrefixNode* const idle = tree.oldest_idle(keep)) {
      release(*idle);
    } else if (PrefixNode* const held = alive.empty() ? tree.unused(keep) : nullptr) {
      give_up(*held);
    } else {
      return false;  // by less than a slab of each kind: blocks that stay lie in those
    }
  }
  return true;
}

// A ready beginning becomes a planned one again.
void Engine::State::give_up(PrefixNode& node) {
  node.track.sequence = {};
  vacate(node.track.room);
  node.state = PrefixNode::State::planned;
  --node.parent->users;
}

// An idle beginning goes, and with it those above that only it needed.
void Engine::State::release(PrefixNode& node) {
  PrefixNode& parent = *node.parent;
  node.track.sequence = {};  // its blocks are wanted now, not when the node is let go
  vacate(node.track.room);
  ended_nodes.push_back(tree.erase(node));
  leave(parent);
}

// One user less.
void Engine::State::leave(PrefixNode& node) {
  --node.users;
  if (node.idle() && !node.many_jobs) release(node);
}

}  // namespace bathys::engine
