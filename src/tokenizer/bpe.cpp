// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/bpe.hpp"

#include "core/error.hpp"
#include "tokenizer/byte_alphabet.hpp"
#include "tokenizer/quoted.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <string>

namespace bathys::tokenizer {
namespace {

constexpr std::size_t kShort = 256;  // bytes up to which scanning all ranks beats a queue

std::uint8_t byte_at(std::string_view text, std::size_t at) { return static_cast<std::uint8_t>(text[at]); }

// Merges waiting to be made: lowest rank first, of equals the leftmost.  A merge table in the order of its training
// makes all merges of one rank before it comes to a higher one, so each rank has a list that is sorted once and then
// walked; what arrives at a rank already begun (only in tables of another order) goes to a heap beside it.
class MergeQueue {
 public:
  struct Entry {
    std::int32_t rank;
    std::uint32_t position;
  };
  void push(std::int32_t rank, std::uint32_t position) {
    ++steps_;
    Bucket& bucket = buckets_[rank];
    if (!bucket.begun) return bucket.listed.push_back(position);
    bucket.late.push(position);
  }
  std::optional<Entry> pop() {
    while (!buckets_.empty()) {
      auto& [rank, bucket] = *buckets_.begin();
      if (const auto position = bucket.pop(steps_)) return Entry{rank, *position};
      buckets_.erase(buckets_.begin());
    }
    return std::nullopt;
  }
  // Entries queued, and n log2 n for each list sorted.
  [[nodiscard]] std::uint64_t steps() const { return steps_; }

 private:
  struct Bucket {
    std::vector<std::uint32_t> listed;
    std::size_t next = 0;
    std::priority_queue<std::uint32_t, std::vector<std::uint32_t>, std::greater<>> late;
    bool begun = false;

    std::optional<std::uint32_t> pop(std::uint64_t& steps) {
      if (!begun) {
        steps += listed.size() * std::bit_width(listed.size());
        std::sort(listed.begin(), listed.end());
      }
      begun = true;
      const bool list_left = next < listed.size();
      if (!late.empty() && (!list_left || late.top() < listed[next])) {
        const std::uint32_t position = late.top();
        late.pop();
        return position;
      }
      return list_left ? std::optional(listed[next++]) : std::nullopt;
    }
  };
  std::map<std::int32_t, Bucket> buckets_;
  std::uint64_t steps_ = 0;
};

}  // namespace

MergeTable::MergeTable(std::size_t count)
    : slots_(std::bit_ceil(2 * count + 2)), shift_(64 - std::countr_zero(slots_.size())) {}

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
      byte_merges_(std::size_t{256} * 256),
      by_bytes_(static_cast<std::size_t>(vocabulary.size())),
      whole_(std::make_unique<std::atomic<std::uint8_t>[]>(static_cast<std::size_t>(vocabulary.size()))) {
  constexpr auto kCode = ExitCode::bad_input;
  require(!file.merges.empty(), kCode, "{}: model.merges is empty, so every text would fall into single bytes", name);
  require(file.merges.size() < static_cast<std::size_t>(MergeTable::kNoRank), kCode, "{}: too many merges", name);
  std::string joined;
  std::int32_t previous = -1;  // result of the merge before: in files of the family the next id is that of this one
  for (std::size_t rank = 0; rank < file.merges.size(); ++rank) {
    const auto part = [&](StringPool::Slice slice) {
      const std::string_view text = file.pool.at(slice);
      const std::int32_t id = vocabulary.find(text);
      require(id != StringIndex::kAbsent && vocabulary.in_model(id), kCode,
              "{}: model.merges[{}] names {}, which model.vocab lacks", name, rank, Quoted{text});
      return id;
    };
    const std::int32_t first = part(file.merges[rank].first);
    const std::int32_t second = part(file.merges[rank].second);
    joined.assign(vocabulary.text(first)).append(vocabulary.text(second));
    const bool follows = vocabulary.contains(previous + 1) && vocabulary.text(previous + 1) == joined;
    const std::int32_t id = follows ? previous + 1 : vocabulary.find(joined);
    require(id != StringIndex::kAbsent && vocabulary.in_model(id), kCode,
            "{}: model.merges[{}] makes {}, which model.vocab lacks", name, rank, Quoted{joined});
    require(merges_.insert(first, second, {static_cast<std::int32_t>(rank), id}), kCode,
            "{}: model.merges[{}] repeats the merge of {} and {}", name, rank, Quoted{vocabulary.text(first)},
            Quoted{vocabulary.text(second)});
    previous = id;
  }
  for (unsigned byte = 0; byte < 256; ++byte) {
    byte_id_[byte] = vocabulary.find(alphabet_spelling(static_cast<std::uint8_t>(byte)));
  }
  for (std::size_t pair = 0; pair < byte_merges_.size(); ++pair) {
    byte_merges_[pair] = merges_.find(byte_id_[pair / 256], byte_id_[pair % 256]);
  }
  for (std::int32_t id = 0; id < vocabulary.size(); ++id) {
    if (vocabulary.is_byte_level(id)) by_bytes_.insert(vocabulary.bytes(id), id);
  }
}

void Bpe::encode(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const {
  if (piece.size() == 1) {
    out.push_back(byte_id_[byte_at(piece, 0)]);
    return;
  }
  steps += piece.size();  // the hash
  const std::int32_t id = by_bytes_.find(piece, [this](std::int32_t token) { return vocabulary_->bytes(token); });
  if (id == StringIndex::kAbsent) return merge(piece, out, steps);
  // Threads that find the answer at the same time write the same value.
  std::atomic<std::uint8_t>& whole = whole_[static_cast<std::size_t>(id)];
  const std::uint8_t known = whole.load(std::memory_order_relaxed);
  if (known == kWhole) {
    out.push_back(id);
    return;
  }
  const std::size_t before = out.size();
  merge(piece, out, steps);
  if (known == kUnknown) {
    whole.store(out.size() == before + 1 && out.back() == id ? kWhole : kSplit, std::memory_order_relaxed);
  }
}

MergeTable::Merge Bpe::byte_merge(std::string_view piece, std::size_t at) const {
  return byte_merges_[byte_at(piece, at) * 256U + byte_at(piece, at + 1)];
}

void Bpe::merge(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const {
  piece.size() <= kShort ? merge_short(piece, out, steps) : merge_long(piece, out, steps);
}

// Lists of symbols, of the ranks of their merges with the next one and of the results, kept dense: finding the lowest
// rank is a scan that compiles to vector code.
void Bpe::merge_short(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const {
  // NOLINTBEGIN(cppcoreguidelines-pro-type-member-init): what is read is written first; filling them costs per word
  std::array<std::int32_t, kShort> ids;
  std::array<std::int32_t, kShort> ranks;
  std::array<std::int32_t, kShort> results;
  // NOLINTEND(cppcoreguidelines-pro-type-member-init)
  std::size_t n = piece.size();
  const auto pair_up = [&](std::size_t at, MergeTable::Merge merge) {
    ranks[at] = merge.rank;
    results[at] = merge.id;
  };
  for (std::size_t i = 0; i < n; ++i) ids[i] = byte_id_[byte_at(piece, i)];
  for (std::size_t i = 0; i + 1 < n; ++i) pair_up(i, byte_merge(piece, i));
  while (n > 1) {
    steps += n;
    std::int32_t lowest = MergeTable::kNoRank;
    for (std::size_t i = 0; i + 1 < n; ++i) lowest = std::min(lowest, ranks[i]);
    if (lowest == MergeTable::kNoRank) break;
    const auto at = static_cast<std::size_t>(std::find(ranks.begin(), ranks.end(), lowest) - ranks.begin());
    ids[at] = results[at];
    const std::size_t behind = n - at - 2;
    if (behind > 0) {
      std::memmove(&ids[at + 1], &ids[at + 2], behind * sizeof(ids[0]));
      std::memmove(&ranks[at], &ranks[at + 1], behind * sizeof(ranks[0]));
      std::memmove(&results[at], &results[at + 1], behind * sizeof(results[0]));
    }
    --n;
    if (at > 0) pair_up(at - 1, merges_.find(ids[at - 1], ids[at]));
    if (at + 1 < n) pair_up(at, merges_.find(ids[at], ids[at + 1]));
  }
  out.insert(out.end(), ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
}

void Bpe::merge_long(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const {
  constexpr std::uint32_t kEnd = UINT32_MAX;
  struct Symbol {
    std::int32_t id;
    std::int32_t rank;  // of the merge with the next one; kNoRank also for symbols that were merged away
    std::uint32_t previous;
    std::uint32_t next;
  };
  require(piece.size() < kEnd, ExitCode::bad_requests,
          "a word of {} bytes without a break is too long, the limit is 4 GiB", piece.size());
  const auto n = static_cast<std::uint32_t>(piece.size());
  std::vector<Symbol> symbols(n);
  MergeQueue queue;
  for (std::uint32_t i = 0; i < n; ++i) {
    const std::int32_t rank = i + 1 < n ? byte_merge(piece, i).rank : MergeTable::kNoRank;
    symbols[i] = {byte_id_[byte_at(piece, i)], rank, i == 0 ? kEnd : i - 1, i + 1 == n ? kEnd : i + 1};
    if (rank != MergeTable::kNoRank) queue.push(rank, i);
  }
  const auto pair_up = [&](std::uint32_t at) {
    Symbol& symbol = symbols[at];
    symbol.rank = symbol.next == kEnd ? MergeTable::kNoRank : merges_.find(symbol.id, symbols[symbol.next].id).rank;
    if (symbol.rank != MergeTable::kNoRank) queue.push(symbol.rank, at);
  };
  while (const auto top = queue.pop()) {
    ++steps;
    Symbol& symbol = symbols[top->position];
    if (symbol.rank != top->rank) continue;  // one of the two has merged with another since
    Symbol& gone = symbols[symbol.next];
    symbol.id = merges_.find(symbol.id, gone.id).id;
    symbol.next = gone.next;
    gone.rank = MergeTable::kNoRank;
    if (symbol.next != kEnd) symbols[symbol.next].previous = top->position;
    pair_up(top->position);
    if (symbol.previous != kEnd) pair_up(symbol.previous);
  }
  steps += n + queue.steps();
  for (std::uint32_t at = 0; at != kEnd; at = symbols[at].next) out.push_back(symbols[at].id);
}

}  // namespace bathys::tokenizer
