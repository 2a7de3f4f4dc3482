// SPDX-License-Identifier: Apache-2.0
#include "model/sequence.hpp"

#include "kernels/cache.hpp"

#include <algorithm>

namespace bathys::model {
namespace {

// A pool keeps less than a slab free that the other could use: little beside the limit.
constexpr std::int64_t kSlabsInLimit = 64;

}  // namespace

CacheArena::CacheArena(const config::ModelConfig& config)
    : layout_(config),
      n_layers_(config.n_layers),
      states_("cache_state", std::max<std::int64_t>(layout_.state_bytes(), 64)),
      pages_("cache_pages", layout_.page_bytes()) {}

void CacheArena::limit(std::int64_t bytes) {
  limit_bytes_ = bytes;
  for (BlockPool* const pool : {&states_, &pages_})
    pool->slab_bytes(bytes == 0 ? BlockPool::kSlabBytes : std::min(BlockPool::kSlabBytes, bytes / kSlabsInLimit));
}

bool CacheArena::make_room(const CacheBlocks& all) {
  const auto holds = [&] { return limit_bytes_ == 0 || counted(all) <= limit_bytes_; };
  if (holds()) return true;
  if (bytes_of(all) > limit_bytes_) return false;
  states_.trim();
  pages_.trim();
  if (!holds() && states_.reserved() > all.states) states_.pack();
  if (!holds() && pages_.reserved() > all.pages) pages_.pack();
  return holds();
}

std::shared_ptr<BlockPool::Block> CacheArena::take(BlockPool& pool, std::int64_t promised) const {
  if (limit_bytes_ == 0) return pool.take();
  const std::int64_t left = std::max<std::int64_t>(0, limit_bytes_ - counted(promised_));
  return pool.take(promised - pool.reserved() + left / pool.block_bytes());
}

Sequence CacheArena::make() {
  Sequence sequence;
  sequence.state_ = take(states_, promised_.states);
  sequence.pages_.resize(static_cast<std::size_t>(layout_.n_sources()));
  sequence.valid_from_.assign(static_cast<std::size_t>(n_layers_), 0);
  return sequence;
}

Sequence CacheArena::fork(const Exec& exec, const Sequence& from) {
  Sequence copy = make();
  copy.length_ = from.length_;
  copy.recent_ = from.recent_;
  copy.valid_from_ = from.valid_from_;
  Kokkos::deep_copy(exec, copy.state_->bytes(), from.state_->bytes());
  for (int source = 0; source < layout_.n_sources(); ++source) {
    const auto& theirs = from.pages_[static_cast<std::size_t>(source)];
    auto& ours = copy.pages_[static_cast<std::size_t>(source)];
    const std::int64_t groups = from.length_ / layout_.ratio(source);
    const std::int64_t full = groups / kernels::kGroupsPerPage;
    ours.assign(theirs.begin(),
                theirs.begin() + std::min<std::int64_t>(full, static_cast<std::int64_t>(theirs.size())));
    if (groups % kernels::kGroupsPerPage != 0) {  // the page still being written is each one's own
      ours.push_back(take(pages_, promised_.pages));
      Kokkos::deep_copy(exec, ours.back()->bytes(), theirs[static_cast<std::size_t>(full)]->bytes());
    }
  }
  return copy;
}

void CacheArena::reserve(Sequence& sequence, std::int64_t length) {
  for (int source = 0; source < layout_.n_sources(); ++source) {
    auto& pages = sequence.pages_[static_cast<std::size_t>(source)];
    const std::int64_t groups = length / layout_.ratio(source);
    const std::int64_t wanted = (groups + kernels::kGroupsPerPage - 1) / kernels::kGroupsPerPage;
    while (static_cast<std::int64_t>(pages.size()) < wanted) pages.push_back(take(pages_, promised_.pages));
  }
}

CacheBlocks CacheArena::blocks_for(std::int64_t length) const {
  CacheBlocks blocks{1, 0};
  for (int source = 0; source < layout_.n_sources(); ++source) {
    const std::int64_t groups = length / layout_.ratio(source);
    blocks.pages += (groups + kernels::kGroupsPerPage - 1) / kernels::kGroupsPerPage;
  }
  return blocks;
}

CacheBlocks CacheArena::shared_blocks(std::int64_t length) const {
  CacheBlocks blocks;
  for (int source = 0; source < layout_.n_sources(); ++source)
    blocks.pages += length / layout_.ratio(source) / kernels::kGroupsPerPage;
  return blocks;
}

}  // namespace bathys::model
