// SPDX-License-Identifier: Apache-2.0
#include "model/block_pool.hpp"

#include <algorithm>
#include <utility>

namespace bathys::model {
namespace {

constexpr std::int64_t kFirstBlocks = 4;
constexpr std::int64_t kMaxBlocksPerSlab = 256;

#ifdef BATHYS_POISON
constexpr bool kPoison = true;
#else
constexpr bool kPoison = false;
#endif

}  // namespace

std::uint8_t* BlockPool::Block::data() const {
  return slab_->memory.data() + static_cast<std::int64_t>(place_) * pool_->block_bytes_;
}

UnmanagedView<std::uint8_t*> BlockPool::Block::bytes() const {
  return UnmanagedView<std::uint8_t*>(data(), static_cast<std::size_t>(pool_->block_bytes_));
}

BlockPool::BlockPool(std::string label, std::int64_t block_bytes, std::int64_t slab_bytes)
    : label_(std::move(label)), block_bytes_(block_bytes), slab_bytes_(slab_bytes) {}

// Small first slab, doubling up to the usual size: a run of few short sequences stays small.
void BlockPool::grow(std::int64_t most) {
  const std::int64_t doubled = std::clamp(reserved_, kFirstBlocks, kMaxBlocksPerSlab);
  const std::int64_t wanted = std::max<std::int64_t>(1, std::min({slab_bytes_ / block_bytes_, doubled, most}));
  Slab& slab = slabs_[n_slabs_made_];
  slab.number = n_slabs_made_++;
  slab.memory = DeviceView<std::uint8_t*>(Kokkos::view_alloc(label_, Kokkos::WithoutInitializing),
                                          static_cast<std::size_t>(wanted * block_bytes_));
  slab.blocks.resize(static_cast<std::size_t>(wanted));
  for (std::size_t place = slab.blocks.size(); place-- > 0;) slab.free.push_back(place);
  open_.insert(slab.number);
  reserved_ += wanted;
}

std::size_t BlockPool::take_place(Slab& slab) {
  const std::size_t place = slab.free.back();
  slab.free.pop_back();
  if (slab.free.empty()) open_.erase(slab.number);
  return place;
}

void BlockPool::free_place(Slab& slab, std::size_t place) {
  slab.blocks[place] = nullptr;
  slab.free.push_back(place);
  open_.insert(slab.number);
}

std::shared_ptr<BlockPool::Block> BlockPool::take(std::int64_t most) {
  if (open_.empty()) grow(most);
  Slab& slab = slabs_.at(*open_.begin());
  const std::size_t place = take_place(slab);
  auto block = std::make_shared<Block>(*this, slab, place);
  slab.blocks[place] = block.get();
  ++used_;
  // 0xFF is NaN in every format that a block holds: reading what was never written then shows.
  if (kPoison) Kokkos::deep_copy(block->bytes(), std::uint8_t{0xff});
  return block;
}

void BlockPool::give_back(const Block& block) {
  free_place(*block.slab_, block.place_);
  --used_;
}

void BlockPool::trim() {
  std::erase_if(slabs_, [&](const auto& entry) {
    const Slab& slab = entry.second;
    if (slab.taken() > 0) return false;
    open_.erase(slab.number);
    reserved_ -= static_cast<std::int64_t>(slab.blocks.size());
    return true;
  });
}

void BlockPool::move(Block& block, Slab& to) {
  const std::size_t place = take_place(to);
  const UnmanagedView<const std::uint8_t*> from = block.bytes();
  free_place(*block.slab_, block.place_);
  block.slab_ = &to;
  block.place_ = place;
  to.blocks[place] = &block;
  Kokkos::deep_copy(Exec(), block.bytes(), from);
}

void BlockPool::pack() {
  std::vector<Slab*> fullest;
  for (auto& [number, slab] : slabs_) fullest.push_back(&slab);
  std::stable_sort(fullest.begin(), fullest.end(),
                   [](const Slab* a, const Slab* b) { return a->taken() > b->taken(); });
  auto emptied = fullest.begin();
  for (std::int64_t places = 0; places < used_; ++emptied)
    places += static_cast<std::int64_t>((*emptied)->blocks.size());
  Kokkos::fence();
  auto to = fullest.begin();
  std::for_each(emptied, fullest.end(), [&](Slab* from) {
    for (Block* const block : std::vector<Block*>(from->blocks)) {
      if (block == nullptr) continue;
      while ((*to)->free.empty()) ++to;
      move(*block, **to);
    }
  });
  Kokkos::fence();
  trim();
}

}  // namespace bathys::model
