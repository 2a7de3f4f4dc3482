// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "tokenizer/string_pool.hpp"
#include "tokenizer/tokenizer_file.hpp"
#include "tokenizer/vocabulary.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// Which two tokens merge into which third, and how early.  Open addressing at a load of at most one half.
class MergeTable {
 public:
  static constexpr std::int32_t kNoRank = INT32_MAX;
  struct Merge {
    std::int32_t rank = kNoRank;  // kNoRank: the pair does not merge
    std::int32_t id = 0;
  };

  explicit MergeTable(std::size_t count);
  // False if the pair is there already.
  bool insert(std::int32_t first, std::int32_t second, Merge merge);
  [[nodiscard]] Merge find(std::int32_t first, std::int32_t second) const {
    for (std::size_t at = home(first, second);; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.first == first && slot.second == second) return slot.merge;
      if (slot.first < 0) return {};
    }
  }
  [[nodiscard]] std::size_t longest_run() const {
    return tokenizer::longest_run(slots_, [](const Slot& slot) { return slot.first >= 0; });
  }

 private:
  struct Slot {
    std::int32_t first = -1;
    std::int32_t second = -1;
    Merge merge;
  };
  [[nodiscard]] std::size_t home(std::int32_t first, std::int32_t second) const {
    const std::uint64_t key =
        std::uint64_t{static_cast<std::uint32_t>(first)} << 32 | static_cast<std::uint32_t>(second);
    return hash_word(key, secret_) >> shift_;
  }
  std::vector<Slot> slots_;
  int shift_;
  HashSecret secret_ = hash_secret();
};

// Byte pair encoding of one piece: starting from bytes, always the merge of lowest rank, the leftmost of equals.
class Bpe {
 public:
  // `vocabulary` must outlive this.
  //   throws Error(bad_input) naming the merge whose part or result is no token, or that stands twice
  Bpe(const TokenizerFile& file, const Vocabulary& vocabulary, std::string_view name);

  // Appends the ids of `piece` (not empty, below 2^32 - 1 bytes).  O(n log n): `steps` grows by the ranks scanned,
  // merges looked up and entries queued.
  void encode(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const;

 private:
  enum : std::uint8_t { kUnknown, kWhole, kSplit };

  // The merge of bytes `at` and `at` + 1.
  [[nodiscard]] MergeTable::Merge byte_merge(std::string_view piece, std::size_t at) const;
  void merge_short(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const;
  void merge_long(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const;
  void merge(std::string_view piece, std::vector<std::int32_t>& out, std::uint64_t& steps) const;

  const Vocabulary* vocabulary_;
  MergeTable merges_;
  std::vector<std::int32_t> byte_id_;           // [256]
  std::vector<MergeTable::Merge> byte_merges_;  // [256 * 256], the first round's look-ups without a search
  StringIndex by_bytes_;
  // Whether merging a token's own bytes gives that token: found at first need.  Most pieces of a text are tokens, and
  // for those the merge loop is one look-up.
  std::unique_ptr<std::atomic<std::uint8_t>[]> whole_;
};

}  // namespace bathys::tokenizer
