// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
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

inline std::uint64_t hash_bytes(std::string_view text) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15U;
  const char* data = text.data();
  std::size_t left = text.size();
  std::uint64_t hash = left * kOdd;
  const auto mix = [&](std::uint64_t word) { hash = std::rotl((hash ^ word) * kOdd, 29); };
  std::uint64_t word = 0;
  for (; left >= 8; left -= 8, data += 8) {
    std::memcpy(&word, data, 8);
    mix(word);
  }
  word = 0;
  for (std::size_t i = 0; i < left; ++i) word |= std::uint64_t{static_cast<std::uint8_t>(data[i])} << 8 * i;
  mix(word);
  return (hash ^ hash >> 32) * kOdd;
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
    const std::uint64_t hash = hash_bytes(text);
    for (std::size_t at = hash >> 32;; ++at) {
      const Slot& slot = slots_[at & (slots_.size() - 1)];
      if (slot.number == kAbsent) return kAbsent;
      if (slot.tag == static_cast<std::uint32_t>(hash) && text_of(slot.number) == text) return slot.number;
    }
  }
  // Enters a string that find() does not find.
  void insert(std::string_view text, std::int32_t number) {
    const std::uint64_t hash = hash_bytes(text);
    std::size_t at = hash >> 32;
    while (slots_[at & (slots_.size() - 1)].number != kAbsent) ++at;
    slots_[at & (slots_.size() - 1)] = {static_cast<std::uint32_t>(hash), number};
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::int32_t number = kAbsent;
  };
  std::vector<Slot> slots_;
};

}  // namespace bathys::tokenizer
