// SPDX-License-Identifier: Apache-2.0
#include "weights/round_reader.hpp"

#include "core/timer.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace bathys::weights {

// One round in memory: room for a head, then the parts one after another.
struct RoundReader::Slab {
  explicit Slab(std::size_t head_room) : memory(head_room + io::kPieceBytes) {}
  io::Buffer memory;
  std::vector<std::span<const std::byte>> rows;
};

RoundReader::RoundReader(const ShardModel& model, std::vector<const Round*> rounds, bool checksums)
    : model_(model), rounds_(std::move(rounds)), checksums_(checksums) {
  std::int64_t longest = 0;
  for (const catalog::DatasetSpec& dataset : model_.table) longest = std::max(longest, row_shape(dataset).row_bytes);
  head_room_ = (static_cast<std::size_t>(longest) + io::kPageBytes - 1) / io::kPageBytes * io::kPageBytes;
  if (rounds_.empty()) return;
  slabs_.push_back(std::make_unique<Slab>(head_room_));
  slabs_.push_back(std::make_unique<Slab>(head_room_));
  start(0);
}

RoundReader::~RoundReader() {
  if (reading_.valid()) reading_.wait();
}

void RoundReader::start(std::size_t round) {
  reading_ = std::async(std::launch::async, [this, round] { fill(*slabs_[round % 2], *rounds_[round]); });
}

void RoundReader::fill(Slab& slab, const Round& round) {
  Timer timer;
  if (round.file != open_file_) {
    shard_.reset();
    shard_ = std::make_unique<io::ShardFile>(model_.index, model_.folder, round.file, checksums_);
    open_file_ = round.file;
    open_s_ += timer.restart();
  }
  slab.rows.clear();
  std::byte* at = slab.memory.data() + head_room_;
  for (const Part& part : round.parts) {
    const std::span<std::byte> piece(at, static_cast<std::size_t>(part.bytes));
    shard_->read_piece(model_.index.datasets[part.dataset], part.piece, piece);
    const std::int64_t row_bytes = row_shape(model_.table[part.dataset]).row_bytes;
    slab.rows.emplace_back(at - part.head_bytes,
                           static_cast<std::size_t>((part.last_row - part.first_row) * row_bytes));
    at += part.bytes;
    bytes_read_ += piece.size();
  }
  read_s_ += timer.seconds();
}

// Moves the row that the border between two rounds cuts in front of its rest.
void RoundReader::copy_head(const Round& before, const Round& round) {
  const Part& first = round.parts.front();
  const Part& last = before.parts.back();
  if (first.head_bytes == 0 || last.dataset != first.dataset || last.piece + 1 != first.piece) return;
  std::int64_t end = 0;
  for (const Part& part : before.parts) end += part.bytes;
  std::byte* const source = slabs_[(next_ - 1) % 2]->memory.data() + head_room_ + end - first.head_bytes;
  std::memcpy(slabs_[next_ % 2]->memory.data() + head_room_ - first.head_bytes, source,
              static_cast<std::size_t>(first.head_bytes));
}

std::span<const std::span<const std::byte>> RoundReader::next() {
  reading_.get();
  if (next_ > 0) copy_head(*rounds_[next_ - 1], *rounds_[next_]);
  const Slab& slab = *slabs_[next_ % 2];
  ++next_;
  if (next_ < rounds_.size()) start(next_);
  return slab.rows;
}

}  // namespace bathys::weights
