// SPDX-License-Identifier: Apache-2.0
#include "model/sequence.hpp"

#include "kernels/cache.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

namespace bathys::model {
namespace {

constexpr std::int64_t kSlabBytes = std::int64_t{4} << 20;
constexpr std::int64_t kMaxBlocksPerSlab = 256;

UnmanagedView<std::uint8_t*> span_of(std::uint8_t* data, std::int64_t bytes) {
  return UnmanagedView<std::uint8_t*>(data, static_cast<std::size_t>(bytes));
}

#ifdef BATHYS_POISON
constexpr bool kPoison = true;
#else
constexpr bool kPoison = false;
#endif

}  // namespace

BlockPool::BlockPool(std::string label, std::int64_t block_bytes)
    : label_(std::move(label)), block_bytes_(block_bytes) {}

// Small first slab, doubling up to the usual size: a run of few short sequences stays small.
std::int64_t BlockPool::next_slab_blocks() const {
  return std::clamp<std::int64_t>(kSlabBytes / block_bytes_, 1,
                                  std::clamp<std::int64_t>(reserved_, 4, kMaxBlocksPerSlab));
}

std::int64_t BlockPool::growth_bytes() const { return free_.empty() ? next_slab_blocks() * block_bytes_ : 0; }

BlockPool::Slab& BlockPool::slab_of(const std::uint8_t* block) { return std::prev(slabs_.upper_bound(block))->second; }

std::shared_ptr<std::uint8_t> BlockPool::take() {
  if (free_.empty()) {
    const std::int64_t wanted = next_slab_blocks();
    DeviceView<std::uint8_t*> slab(Kokkos::view_alloc(label_, Kokkos::WithoutInitializing),
                                   static_cast<std::size_t>(wanted * block_bytes_));
    for (std::int64_t i = wanted - 1; i >= 0; --i) free_.push_back(slab.data() + i * block_bytes_);
    const std::uint8_t* const first = slab.data();
    slabs_.emplace(first, Slab{std::move(slab), 0});
    reserved_ += wanted;
  }
  std::uint8_t* block = free_.back();
  free_.pop_back();
  ++used_;
  ++slab_of(block).taken;
  // 0xFF is NaN in every format that a block holds: reading what was never written then shows.
  if (kPoison) Kokkos::deep_copy(span_of(block, block_bytes_), std::uint8_t{0xff});
  return {block, [this](std::uint8_t* b) {
            free_.push_back(b);
            --used_;
            --slab_of(b).taken;
          }};
}

void BlockPool::trim() {
  std::erase_if(free_, [&](const std::uint8_t* block) { return slab_of(block).taken == 0; });
  std::erase_if(slabs_, [&](const auto& entry) {
    if (entry.second.taken > 0) return false;
    reserved_ -= static_cast<std::int64_t>(entry.second.memory.extent(0)) / block_bytes_;
    return true;
  });
}

CacheArena::CacheArena(const config::ModelConfig& config)
    : layout_(config),
      n_layers_(config.n_layers),
      states_("cache_state", std::max<std::int64_t>(layout_.state_bytes(), 64)),
      pages_("cache_pages", layout_.page_bytes()) {}

std::shared_ptr<std::uint8_t> CacheArena::take(BlockPool& pool) {
  if (limit_bytes_ > 0 && pool.growth_bytes() > 0 && reserved_bytes() + pool.growth_bytes() > limit_bytes_) {
    states_.trim();
    pages_.trim();
  }
  return pool.take();
}

Sequence CacheArena::make() {
  Sequence sequence;
  sequence.state_ = take(states_);
  sequence.pages_.resize(static_cast<std::size_t>(layout_.n_sources()));
  sequence.valid_from_.assign(static_cast<std::size_t>(n_layers_), 0);
  return sequence;
}

Sequence CacheArena::fork(const Exec& exec, const Sequence& from) {
  Sequence copy = make();
  copy.length_ = from.length_;
  copy.recent_ = from.recent_;
  copy.valid_from_ = from.valid_from_;
  Kokkos::deep_copy(exec, span_of(copy.state_.get(), layout_.state_bytes()),
                    span_of(from.state_.get(), layout_.state_bytes()));
  for (int source = 0; source < layout_.n_sources(); ++source) {
    const auto& theirs = from.pages_[static_cast<std::size_t>(source)];
    auto& ours = copy.pages_[static_cast<std::size_t>(source)];
    const std::int64_t groups = from.length_ / layout_.ratio(source);
    const std::int64_t full = groups / kernels::kGroupsPerPage;
    ours.assign(theirs.begin(),
                theirs.begin() + std::min<std::int64_t>(full, static_cast<std::int64_t>(theirs.size())));
    if (groups % kernels::kGroupsPerPage != 0) {  // the page still being written is each one's own
      ours.push_back(take(pages_));
      Kokkos::deep_copy(exec, span_of(ours.back().get(), layout_.page_bytes()),
                        span_of(theirs[static_cast<std::size_t>(full)].get(), layout_.page_bytes()));
    }
  }
  return copy;
}

void CacheArena::reserve(Sequence& sequence, std::int64_t length) {
  for (int source = 0; source < layout_.n_sources(); ++source) {
    auto& pages = sequence.pages_[static_cast<std::size_t>(source)];
    const std::int64_t groups = length / layout_.ratio(source);
    const std::int64_t wanted = (groups + kernels::kGroupsPerPage - 1) / kernels::kGroupsPerPage;
    while (static_cast<std::int64_t>(pages.size()) < wanted) pages.push_back(take(pages_));
  }
}

std::int64_t CacheArena::bytes_for(std::int64_t length) const {
  std::int64_t bytes = states_.block_bytes();
  for (int source = 0; source < layout_.n_sources(); ++source) {
    const std::int64_t groups = length / layout_.ratio(source);
    bytes += (groups + kernels::kGroupsPerPage - 1) / kernels::kGroupsPerPage * layout_.page_bytes();
  }
  return bytes;
}

std::int64_t CacheArena::shared_bytes(std::int64_t length) const {
  std::int64_t bytes = 0;
  for (int source = 0; source < layout_.n_sources(); ++source)
    bytes += length / layout_.ratio(source) / kernels::kGroupsPerPage * layout_.page_bytes();
  return bytes;
}

}  // namespace bathys::model
