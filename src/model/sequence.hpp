// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"
#include "model/cache_layout.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <vector>

namespace bathys::model {

// Equal blocks of device memory, taken and given back one at a time.  Grows by slabs; gives slabs back when told to.
class BlockPool {
 public:
  BlockPool(std::string label, std::int64_t block_bytes);

  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // A block that returns to the pool when its last owner goes.  The pool must outlive it.
  std::shared_ptr<std::uint8_t> take();
  // Bytes that the next take() will allocate: 0 while a block is free.
  [[nodiscard]] std::int64_t growth_bytes() const;
  // Frees the slabs of which no block is taken.
  void trim();
  [[nodiscard]] std::int64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::int64_t used_bytes() const { return used_ * block_bytes_; }
  [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_ * block_bytes_; }

 private:
  std::string label_;
  std::int64_t block_bytes_;
  std::int64_t used_ = 0, reserved_ = 0;
  struct Slab {
    DeviceView<std::uint8_t*> memory;
    std::int64_t taken = 0;
  };
  [[nodiscard]] std::int64_t next_slab_blocks() const;
  [[nodiscard]] Slab& slab_of(const std::uint8_t* block);
  std::map<const std::uint8_t*, Slab> slabs_;  // by their first byte
  std::vector<std::uint8_t*> free_;
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
  std::shared_ptr<std::uint8_t> state_;
  std::vector<std::vector<std::shared_ptr<std::uint8_t>>>
      pages_;                             // [source][page]; full pages are shared between forks
  std::vector<std::int64_t> recent_;      // compressed ids of the last tokens, newest last; kDead in images
  std::vector<std::int64_t> valid_from_;  // [layer] oldest position whose window KV is there
};

// Makes sequences out of two pools.
class CacheArena {
 public:
  explicit CacheArena(const config::ModelConfig& config);

  // Bytes that the pools should not grow beyond together (0: none): before they do, slabs that lie idle in one are
  // freed for the other.  Who admits sequences keeps what is used below it.
  void limit(std::int64_t bytes) { limit_bytes_ = bytes; }

  [[nodiscard]] const CacheLayout& layout() const { return layout_; }
  Sequence make();
  // An independent copy: going on with either never changes the other.  Full pages are shared, the rest is copied.
  Sequence fork(const Exec& exec, const Sequence& from);
  // Pages for `length` positions of a sequence that is about to grow.
  void reserve(Sequence& sequence, std::int64_t length);

  [[nodiscard]] std::int64_t used_bytes() const { return states_.used_bytes() + pages_.used_bytes(); }
  [[nodiscard]] std::int64_t reserved_bytes() const { return states_.reserved_bytes() + pages_.reserved_bytes(); }
  // Bytes that a sequence of this length takes when nothing is shared.
  [[nodiscard]] std::int64_t bytes_for(std::int64_t length) const;
  // Those of them that a fork at this length shares: its full pages.
  [[nodiscard]] std::int64_t shared_bytes(std::int64_t length) const;

 private:
  std::shared_ptr<std::uint8_t> take(BlockPool& pool);

  CacheLayout layout_;
  int n_layers_;
  std::int64_t limit_bytes_ = 0;
  BlockPool states_, pages_;
};

}  // namespace bathys::model
