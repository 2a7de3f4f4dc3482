// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"

#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

namespace bathys::model {

// Equal blocks of device memory, taken and given back one at a time.  Grows by slabs; gives slabs back when told to.
// What it does depends on the calls alone, never on addresses: the ranks of a group, which make the same calls, hold
// the same.
class BlockPool {
  struct Slab;

 public:
  // Returns to its pool when its last owner goes.  Where it lies changes when the pool is packed.
  class Block {
   public:
    Block(BlockPool& pool, Slab& slab, std::size_t place) : pool_(&pool), slab_(&slab), place_(place) {}
    ~Block() { pool_->give_back(*this); }
    Block(const Block&) = delete;
    Block& operator=(const Block&) = delete;
    [[nodiscard]] std::uint8_t* data() const;
    [[nodiscard]] UnmanagedView<std::uint8_t*> bytes() const;  // all of the block

   private:
    friend class BlockPool;
    BlockPool* pool_;
    Slab* slab_;
    std::size_t place_;  // in the slab
  };

  // `slab_bytes`: the usual size of a slab.
  BlockPool(std::string label, std::int64_t block_bytes, std::int64_t slab_bytes = kSlabBytes);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  void slab_bytes(std::int64_t bytes) { slab_bytes_ = bytes; }
  // The pool must outlive the block.  Where none is free the pool grows, by `most` blocks at most (1 if that is less).
  std::shared_ptr<Block> take(std::int64_t most = std::numeric_limits<std::int64_t>::max());
  // Frees the slabs of which no block is taken.
  void trim();
  // Moves blocks out of the emptiest slabs into the others, as far as these have room, and frees what that empties:
  // less than a slab is left free then.  No kernel may be using a block.
  void pack();

  [[nodiscard]] std::int64_t block_bytes() const { return block_bytes_; }
  [[nodiscard]] std::int64_t used() const { return used_; }          // blocks
  [[nodiscard]] std::int64_t reserved() const { return reserved_; }  // blocks, free ones included
  [[nodiscard]] std::int64_t used_bytes() const { return used_ * block_bytes_; }
  [[nodiscard]] std::int64_t reserved_bytes() const { return reserved_ * block_bytes_; }

  static constexpr std::int64_t kSlabBytes = std::int64_t{4} << 20;

 private:
  struct Slab {
    std::int64_t number = 0;
    DeviceView<std::uint8_t*> memory;
    std::vector<Block*> blocks;     // by place; null: free
    std::vector<std::size_t> free;  // places
    [[nodiscard]] std::int64_t taken() const { return static_cast<std::int64_t>(blocks.size() - free.size()); }
  };
  void grow(std::int64_t most);
  std::size_t take_place(Slab& slab);
  void free_place(Slab& slab, std::size_t place);
  void give_back(const Block& block);
  void move(Block& block, Slab& to);

  std::string label_;
  std::int64_t block_bytes_, slab_bytes_;
  std::int64_t used_ = 0, reserved_ = 0, n_slabs_made_ = 0;
  std::map<std::int64_t, Slab> slabs_;  // by number: in the order in which they were made
  std::set<std::int64_t> open_;         // those with a free place; the oldest is filled first
};

}  // namespace bathys::model
