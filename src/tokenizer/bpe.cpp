// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <functional>
#include <string>

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/unicode.hpp"

namespace bathys::tokenizer {
namespace {

constexpr std::size_t kShort = 48;  // bytes up to which scanning all ranks beats a heap

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

}  // namespace

MergeTable::MergeTable(std::size_t count) : slots_(std::bit_ceil(2 * count + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

bool MergeTable::insert(std::int32_t first, std::int32_t second, Merge merge) {
  std::size_t at = home(first, second);
  for (;; ++at) {
    const Slot& slot = slots_[at & (slots_.size() - 1)];
    if (slot.first < 0) break;
    if (slot.first == first && slot.second == second) return false;
  }
  slots_[at & (slots_.size() - 1)] = {first, second, merge};
  return true;
}

Bpe::Bpe(const TokenizerFile& file, const Vocabulary& vocabulary, std::string_view name)
    : vocabulary_(&vocabulary),
      merges_(file.merges.size()),
      byte_id_(256),
      byte_merges_(256 * 256),
      by_bytes_(static_cast<std::size_t>(vocabulary.size())),
      whole_(std::make_unique<std::atomic<std::uint8_t>[]>(static_cast<std::size_t>(vocabulary.size()))) {
  constexpr auto kCode = ExitCode::bad_input;
  require(!file.merges.empty(), kCode, "{}: model.merges is empty, so every text would fall into single bytes", name);
  require(file.merges.size() < static_cast<std::size_t>(MergeTable::kNoRank), kCode, "{}: too many merges", name);
  std::string joined;
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto part = [&](StringPool::Slice slice) {
      const std::string_view text = file.pool.at(slice);
      const std::int32_t id = vocabulary.find(text);
      require(id != StringIndex::kAbsent && vocabulary.in_model(id), kCode,
              "{}: model.merges[{}] names \"{}\", which model.vocab lacks", name, rank, text);
      return id;
    };
    const std::int32_t first = part(file.merges[rank].first);
    const std::int32_t second = part(file.merges[rank].second);
    joined.assign(vocabulary.text(first)).append(vocabulary.text(second));
    const std::int32_t id = vocabulary.find(joined);
    require(id != StringIndex::kAbsent && vocabulary.in_model(id), kCode,
            "{}: model.merges[{}] makes \"{}\", which model.vocab lacks", name, rank, joined);
    require(merges_.insert(first, second, {static_cast<std::int32_t>(rank), id}), kCode,
            "{}: model.merges[{}] repeats the merge of \"{}\" and \"{}\"", name, rank, vocabulary.text(first),
            vocabulary.text(second));
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    std::string spelling;
    append_utf8(spelling, alphabet_character(static_cast<std::uint8_t>(byte)));
    byte_id_[byte] = vocabulary.find(spelling);
  }
  for (std::size_t pair = 0; pair < byte_merges_.size(); ++pair) {
    byte_merges_[pair] = merges_.find(byte_id_[pair / 256], byte_id_[pair % 256]);
  }
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.in_model(id) && alphabet_bytes(vocabulary.text(id))) by_bytes_.insert(vocabulary.bytes(id), id);
  }
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& out) const {
  if (piece.size() == 1) {
    out.push_back(byte_id_[byte_at(piece, 0)]);
    return;
  }
  const std::int32_t id = by_bytes_.find(piece, [this](std::int32_t token) { return vocabulary_->bytes(token); });
  if (id == StringIndex::kAbsent) return merge(piece, out);
  // Threads that find the answer at the same time write the same value.
  std::atomic<std::uint8_t>& whole = whole_[static_cast<std::size_t>(id)];
  const std::uint8_t known = whole.load(std::memory_order_relaxed);
  if (known == kWhole) {
    out.push_back(id);
    return;
  }
  const std::size_t before = out.size();
  merge(piece, out);
  if (known == kUnknown) {
    whole.store(out.size() == before + 1 && out.back() == id ? kWhole : kSplit, std::memory_order_relaxed);
  }
}

void Bpe::merge(std::string_view piece, std::vector<std::int32_t>& out) const {
  piece.size() <= kShort ? merge_short(piece, out) : merge_long(piece, out);
}

void Bpe::merge_short(std::string_view piece, std::vector<std::int32_t>& out) const {
  using Merge = MergeTable::Merge;
  std::array<std::int32_t, kShort + 1> ids;
  std::array<Merge, kShort + 1> merges;  // merges[i]: of symbols i and i + 1; the last symbol has none
  std::size_t n = piece.size();
  for (std::size_t i = 0; i < n; ++i) {
    ids[i] = byte_id_[byte_at(piece, i)];
    merges[i] = i + 1 < n ? byte_merges_[byte_at(piece, i) * 256U + byte_at(piece, i + 1)] : Merge{};
  }
  while (n > 1) {
    std::size_t best = 0;
    for (std::size_t i = 1; i + 1 < n; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].rank == MergeTable::kNoRank) break;
    ids[best] = merges[best].id;
    std::copy(ids.begin() + static_cast<std::ptrdiff_t>(best) + 2, ids.begin() + static_cast<std::ptrdiff_t>(n),
              ids.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    std::copy(merges.begin() + static_cast<std::ptrdiff_t>(best) + 2, merges.begin() + static_cast<std::ptrdiff_t>(n),
              merges.begin() + static_cast<std::ptrdiff_t>(best) + 1);
    --n;
    if (best > 0) merges[best - 1] = merges_.find(ids[best - 1], ids[best]);
    merges[best] = best + 1 < n ? merges_.find(ids[best], ids[best + 1]) : Merge{};
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

void Bpe::merge_long(std::string_view piece, std::vector<std::int32_t>& out) const {
  constexpr std::uint32_t kEnd = UINT32_MAX;
  struct Symbol {
    std::int32_t id;
    std::int32_t rank;  // of the merge with the next one; kNoRank also for symbols that were merged away
    std::uint32_t previous;
    std::uint32_t next;
  };
  require(piece.size() < kEnd, ExitCode::bad_requests, "a word of {} bytes without a break is too long, the limit is 4 GiB",
          piece.size());
  const auto n = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(n);
  std::vector<std::uint64_t> heap;  // rank << 32 | position: lowest rank first, then leftmost
  const auto entry = [](std::int32_t rank, std::uint32_t at) {
    return std::uint64_t{static_cast<std::uint32_t>(rank)} << 32 | at;
  };
  for (std::uint32_t i = 0; i < n; ++i) {
    const MergeTable::Merge merge =
        i + 1 < n ? byte_merges_[byte_at(piece, i) * 256U + byte_at(piece, i + 1)] : MergeTable::Merge{};
    symbols[i] = {byte_id_[byte_at(piece, i)], merge.rank, i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1};
    if (merge.rank != MergeTable::kNoRank) heap.push_back(entry(merge.rank, i));
  }
  std::make_heap(heap.begin(), heap.end(), std::greater<>());
  const auto pair_up = [&](std::uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == kEnd ? MergeTable::kNoRank : merges_.find(symbol.id, symbols[symbol.next].id).rank;
    if (symbol.rank == MergeTable::kNoRank) return;
    heap.push_back(entry(symbol.rank, at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const std::uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<std::uint32_t>(top);
    Symbol& symbol = symbols[at];
    if (entry(symbol.rank, at) != top) continue;  // one of the two has merged with another since
    Symbol& gone = symbols[symbol.next];
    symbol.id = merges_.find(symbol.id, gone.id).id;
    symbol.next = gone.next;
    gone.rank = MergeTable::kNoRank;
    if (symbol.next != kEnd) symbols[symbol.next].previous = at;
    pair_up(at);
    if (symbol.previous != kEnd) pair_up(symbol.previous);
  }
  for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next) out.push_back(symbols[at].id);
}

}  // namespace bathys::tokenizer
