// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"
#include "model/block_pool.hpp"
#include "model/cache_layout.hpp"

#include <algorithm>
#include <cstdint>
#include <memory>
#include <vector>

namespace bathys::model {

// Blocks of caches: a state for each sequence, and pages.
struct CacheBlocks {
  std::int64_t states = 0, pages = 0;

  friend CacheBlocks operator+(CacheBlocks a, const CacheBlocks& b) { return {a.states + b.states, a.pages + b.pages}; }
  friend CacheBlocks operator-(CacheBlocks a, const CacheBlocks& b) { return {a.states - b.states, a.pages - b.pages}; }
  CacheBlocks& operator+=(const CacheBlocks& b) { return *this = *this + b; }
  CacheBlocks& operator-=(const CacheBlocks& b) { return *this = *this - b; }
};

// Everything that a sequence carries from step to step, and nothing else does: window rings, open compressor groups,
// compressed groups and index keys (as codes with scales), the last tokens for the n-gram look-back.  Move-only;
// CacheArena::fork copies.
class Sequence {
 public:
  // Stands for an image position in the n-gram look-back.
  static constexpr std::int64_t kDead = -1;

  Sequence() = default;
  Sequence(Sequence&&) = default;
  Sequence& operator=(Sequence&&) = default;
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  // Positions seen so far; the next row of the sequence has this position.
  [[nodiscard]] std::int64_t length() const { return length_; }

 private:
  friend class CacheArena;
  friend class StepPlan;
  std::int64_t length_ = 0;
  std::shared_ptr<BlockPool::Block> state_;
  std::vector<std::vector<std::shared_ptr<BlockPool::Block>>>
      pages_;                             // [source][page]; full pages are shared between forks
  std::vector<std::int64_t> recent_;      // compressed ids of the last tokens, newest last; kDead in images
  std::vector<std::int64_t> valid_from_;  // [layer] oldest position whose window KV is there
};

// Makes sequences out of two pools.  What the pools reserve stays within a limit by this: who admits sequences says
// what all of them may come to take together, which make_room() agreed to; each pool counts with the larger of that and
// what it has reserved, and grows beyond what it may come to need only into what both leave of the limit.
class CacheArena {
 public:
  explicit CacheArena(const config::ModelConfig& config);

  // Bytes that the pools may reserve together; 0: no limit.
  void limit(std::int64_t bytes);
  // Whether sequences may come to take `all` together.  Where blocks that are free lie in the way, slabs are freed and,
  // if need be, blocks moved, which changes no number.  No kernel may be using a block.
  [[nodiscard]] bool make_room(const CacheBlocks& all);
  // What sequences may come to take together from now on, those included that are there.
  void promise(const CacheBlocks& all) { promised_ = all; }

  [[nodiscard]] const CacheLayout& layout() const { return layout_; }
  Sequence make();
  // An independent copy: going on with either never changes the other.  Full pages are shared, the rest is copied.
  Sequence fork(const Exec& exec, const Sequence& from);
  // Pages for `length` positions of a sequence that is about to grow.
  void reserve(Sequence& sequence, std::int64_t length);

  [[nodiscard]] std::int64_t used_bytes() const { return states_.used_bytes() + pages_.used_bytes(); }
  [[nodiscard]] std::int64_t reserved_bytes() const { return states_.reserved_bytes() + pages_.reserved_bytes(); }
  // What a sequence of this length takes when nothing is shared.
  [[nodiscard]] CacheBlocks blocks_for(std::int64_t length) const;
  // Those of them that a fork at this length shares: its full pages.
  [[nodiscard]] CacheBlocks shared_blocks(std::int64_t length) const;
  [[nodiscard]] std::int64_t bytes_of(const CacheBlocks& blocks) const {
    return blocks.states * states_.block_bytes() + blocks.pages * pages_.block_bytes();
  }
  [[nodiscard]] std::int64_t bytes_for(std::int64_t length) const { return bytes_of(blocks_for(length)); }

 private:
  // Bytes with which the pools count when `all` is promised.
  [[nodiscard]] std::int64_t counted(const CacheBlocks& all) const {
    return bytes_of({std::max(states_.reserved(), all.states), std::max(pages_.reserved(), all.pages)});
  }
  std::shared_ptr<BlockPool::Block> take(BlockPool& pool, std::int64_t promised) const;

  CacheLayout layout_;
  int n_layers_;
  std::int64_t limit_bytes_ = 0;
  CacheBlocks promised_;
  BlockPool states_, pages_;
};

}  // namespace bathys::model
