// SPDX-License-Identifier: Apache-2.0
#include "model/sequence.hpp"

#include "kernels/cache.hpp"

#include <algorithm>
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

std::shared_ptr<std::uint8_t> BlockPool::take() {
  if (free_.empty()) {
    // Small first slab, doubling up to the usual size: a run of few short sequences stays small.
    const std::int64_t wanted = std::clamp<std::int64_t>(kSlabBytes / block_bytes_, 1,
                                                         std::clamp<std::int64_t>(reserved_, 4, kMaxBlocksPerSlab));
    DeviceView<std::uint8_t*> slab(Kokkos::view_alloc(label_, Kokkos::WithoutInitializing),
                                   static_cast<std::size_t>(wanted * block_bytes_));
    for (std::int64_t i = wanted - 1; i >= 0; --i) free_.push_back(slab.data() + i * block_bytes_);
    slabs_.push_back(std::move(slab));
    reserved_ += wanted;
  }
  std::uint8_t* block = free_.back();
  free_.pop_back();
  ++used_;
  // 0xFF is NaN in every format that a block holds: reading what was never written then shows.
  if (kPoison) Kokkos::deep_copy(span_of(block, block_bytes_), std::uint8_t{0xff});
  return {block, [this](std::uint8_t* b) {
            free_.push_back(b);
            --used_;
          }};
}

CacheArena::CacheArena(const config::ModelConfig& config)
    : layout_(config),
      n_layers_(config.n_layers),
      states_("cache_state", std::max<std::int64_t>(layout_.state_bytes(), 64)),
      pages_("cache_pages", layout_.page_bytes()) {}

Sequence CacheArena::make() {
  Sequence sequence;
  sequence.state_ = states_.take();
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
      ours.push_back(pages_.take());
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
    while (static_cast<std::int64_t>(pages.size()) < wanted) pages.push_back(pages_.take());
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
