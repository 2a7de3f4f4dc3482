// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bathys::io {

// A 128-bit XXH3 value: fast, and sure against accidents (not against an attacker).  Guards pieces of data.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  bool operator==(const Hash128&) const = default;
  // 32 hexadecimal digits, high part first: the form that `xxhsum -H2` and Python's xxhash.xxh3_128_hexdigest print.
  [[nodiscard]] std::string hex() const;
};

Hash128 xxh3_128(std::span<const std::byte> bytes);
Hash128 xxh3_128(std::string_view text);

// xxh3_128 of bytes given in order.
class PieceHash {
 public:
  PieceHash();
  ~PieceHash();
  PieceHash(const PieceHash&) = delete;
  PieceHash& operator=(const PieceHash&) = delete;
  void update(std::span<const std::byte> bytes);
  [[nodiscard]] Hash128 value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// SHA-256 over pieces given in order; identities that people compare with published values.
class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;
  void update(std::span<const std::byte> bytes);
  void update(std::string_view text) { update(std::as_bytes(std::span(text))); }
  // 64 lowercase hexadecimal digits; ends the use of the object.
  std::string hex();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256_hex(std::string_view text);
std::string sha256_hex(std::span<const std::byte> bytes);

}  // namespace bathys::io
