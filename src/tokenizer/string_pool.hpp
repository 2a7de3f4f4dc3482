// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::tokenizer {

// Strings in one block of memory, below 4 GiB in all.
class StringPool {
 public:
  struct Slice {
    std::uint32_t begin = 0;
    std::uint32_t size = 0;
  };
  void reserve(std::size_t bytes) { bytes_.reserve(bytes); }
  Slice add(std::string_view text) {
    const Slice slice{static_cast<std::uint32_t>(bytes_.size()), static_cast<std::uint32_t>(text.size())};
    bytes_.append(text);
    return slice;
  }
  [[nodiscard]] std::string_view at(Slice slice) const { return {bytes_.data() + slice.begin, slice.size}; }

 private:
  std::string bytes_;
};

// What the hash tables of a process mix into every key, drawn at random: whoever writes a file cannot know which keys
// collide.  No result depends on it.
struct HashSecret {
  std::uint64_t word;
  std::uint64_t factor;
};

inline HashSecret hash_secret() {
  static const HashSecret secret = [] {
    std::random_device source;
    const auto draw = [&source] { return std::uint64_t{source()} << 32 | source(); };
    const std::uint64_t word = draw();
    return HashSecret{word, draw() | 1};
  }();
  return secret;
}

// Both halves of the product: unlike the lower half alone, a difference of two keys spreads in a way that only the
// secret tells.
inline std::uint64_t hash_word(std::uint64_t word, HashSecret secret) {
  __extension__ using Wide = unsigned __int128;
  const Wide product = static_cast<Wide>(word ^ secret.word) * secret.factor;
  return static_cast<std::uint64_t>(product) ^ static_cast<std::uint64_t>(product >> 64);
}

inline std::uint64_t hash_bytes(std::string_view text, HashSecret secret) {
  const char* data = text.data();
  std::size_t left = text.size();
  std::uint64_t hash = left;
  std::uint64_t word = 0;
  for (; left >= 8; left -= 8, data += 8) {
    std::memcpy(&word, data, 8);
    hash = hash_word(hash ^ word, secret);
  }
  word = 0;
  for (std::size_t i = 0; i < left; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(data[i])} << 8 * i;
  return hash_word(hash_word(hash ^ word, secret), secret);
}

// The longest run of slots in use of an open-addressing table: what its slowest look-up walks.
template <class Slots, class InUse>
std::size_t longest_run(const Slots& slots, const InUse& in_use) {
  std::size_t longest = 0;
  std::size_t run = 0;
  for (std::size_t i = 0; i < 2 * slots.size(); ++i) {  // twice around: a run may pass the end
    run = in_use(slots[i % slots.size()]) ? run + 1 : 0;
    longest = std::max(longest, run);
  }
  return longest;
}

// Hash table from strings to their numbers, open addressing at a load of at most one half; the strings stay with their
// owner.
class StringIndex {
 public:
  static constexpr std::int32_t kAbsent = -1;

  // Room for `count` strings.
  explicit StringIndex(std::size_t count = 0) : slots_(std::bit_ceil(2 * count + 2)) {}

  // The number of `text`, or kAbsent; `text_of(number)` gives the string of a number.
  template <class TextOf>
  [[nodiscard]] std::int32_t find(std::string_view text, const TextOf& text_of) const {
    const std::uint64_t hash = hash_bytes(text, secret_);
    for (std::size_t at = hash >> 32;; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.number == kAbsent) return kAbsent;
      if (slot.tag == static_cast<std::uint32_t>(hash) && text_of(slot.number) == text) return slot.number;
    }
  }
  // Enters a string that find() does not find.
  void insert(std::string_view text, std::int32_t number) {
    const std::uint64_t hash = hash_bytes(text, secret_);
    std::size_t at = hash >> 32;
    while (slots_[at & (slots_.size() - 1)].number != kAbsent) ++at;
    slots_[at & (slots_.size() - 1)] = {static_cast<std::uint32_t>(hash), number};
  }
  [[nodiscard]] std::size_t longest_run() const {
    return tokenizer::longest_run(slots_, [](const Slot& slot) { return slot.number != kAbsent; });
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t number = kAbsent;
  };
  std::vector<Slot> slots_;
  HashSecret secret_ = hash_secret();
};

}  // namespace bathys::tokenizer
