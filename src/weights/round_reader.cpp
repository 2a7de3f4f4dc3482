// SPDX-License-Identifier: Apache-2.0
#include "weights/round_reader.hpp"

#include "core/timer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bathys::weights {
namespace {

constexpr std::size_t kOpenFiles = 2;  // the one being read and the one that comes next

}  // namespace

RoundReader::RoundReader(const ShardModel& model, std::vector<const Round*> rounds, const LoadOptions& options)
    : model_(model), rounds_(std::move(rounds)), checksums_(options.checksums) {
  std::int64_t longest = 0;
  for (const catalog::DatasetSpec& dataset : model_.table) longest = std::max(longest, row_shape(dataset).row_bytes);
  head_room_ = (static_cast<std::size_t>(longest) + io::kPageBytes - 1) / io::kPageBytes * io::kPageBytes;
  const auto most = static_cast<std::size_t>(std::max(options.read_ahead, 1)) + 1;
  std::vector<Slab> slabs(std::min(most, rounds_.size()));
  if (slabs.size() == 1) slabs.emplace_back();  // the slab before stays while a head is copied
  for (Slab& slab : slabs) slab.memory = io::Buffer(head_room_ + io::kPieceBytes);
  if (rounds_.empty()) return;
  ahead_.emplace(
      rounds_.size(), std::move(slabs), [this](std::size_t job, Slab& slab) { fill(slab, job); },
      [this](std::size_t job) { will_need(job); });
}

RoundReader::Shard RoundReader::opened(const std::string& file) {
  const std::lock_guard lock(mutex_);
  const auto found =
      std::find_if(shards_.begin(), shards_.end(), [&](const auto& known) { return known.first == file; });
  return found == shards_.end() ? nullptr : found->second;
}

RoundReader::Shard RoundReader::open(const std::string& file) {
  if (Shard shard = opened(file)) return shard;
  const std::lock_guard one_at_a_time(opening_);
  if (Shard shard = opened(file)) return shard;  // by the thread that we waited for
  const Timer timer;
  auto shard = std::make_shared<io::ShardFile>(model_.index, model_.folder, file, checksums_);
  const std::lock_guard lock(mutex_);
  open_s_ += timer.seconds();
  shards_.emplace_back(file, shard);
  if (shards_.size() > kOpenFiles) shards_.pop_front();
  return shard;
}

// Where its file is not open yet nothing is asked for: opening it takes longer than the hint would save.
void RoundReader::will_need(std::size_t number) {
  const Shard shard = opened(rounds_[number]->file);
  if (!shard) return;
  for (const Part& part : rounds_[number]->parts) shard->will_need(model_.index.datasets[part.dataset], part.piece);
}

void RoundReader::fill(Slab& slab, std::size_t number) {
  const Round& round = *rounds_[number];
  const Shard shard = model_.synthetic ? nullptr : open(round.file);
  const Timer timer;
  slab.rows.clear();
  std::byte* at = slab.memory.data() + head_room_;
  std::uint64_t bytes = 0;
  double calls_s = 0;
  for (const Part& part : round.parts) {
    const std::span<std::byte> piece(at, static_cast<std::size_t>(part.bytes));
    if (shard) {
      calls_s += shard->read_piece(model_.index.datasets[part.dataset], part.piece, piece);
      bytes += piece.size();
    } else {
      read_synthetic(model_, part.dataset, part.piece * io::kPieceBytes, piece);
    }
    const std::int64_t row_bytes = row_shape(model_.table[part.dataset]).row_bytes;
    slab.rows.emplace_back(at - part.head_bytes,
                           static_cast<std::size_t>((part.last_row - part.first_row) * row_bytes));
    at += part.bytes;
  }
  const std::lock_guard lock(mutex_);
  bytes_read_ += bytes;
  read_s_ += timer.seconds();
  read_calls_s_ += calls_s;
}

// Moves the row that the border between two rounds cuts in front of its rest.
void RoundReader::copy_head(const Round& before, const Round& round, const Slab& from, Slab& to) const {
  const Part& first = round.parts.front();
  const Part& last = before.parts.back();
  if (first.head_bytes == 0 || last.dataset != first.dataset || last.piece + 1 != first.piece) return;
  std::int64_t end = 0;
  for (const Part& part : before.parts) end += part.bytes;
  const std::byte* const source = from.memory.data() + head_room_ + end - first.head_bytes;
  std::memcpy(to.memory.data() + head_room_ - first.head_bytes, source, static_cast<std::size_t>(first.head_bytes));
}

std::span<const std::span<const std::byte>> RoundReader::next() {
  Slab& slab = ahead_->take();
  if (next_ > 0) copy_head(*rounds_[next_ - 1], *rounds_[next_], ahead_->before(), slab);
  ++next_;
  ahead_->release();
  return slab.rows;
}

}  // namespace bathys::weights
