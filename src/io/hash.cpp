// SPDX-License-Identifier: Apache-2.0
#include "io/hash.hpp"

#include "core/error.hpp"

#include <array>

#include <openssl/evp.h>
#include <xxhash.h>

namespace bathys::io {

std::string Hash128::hex() const { return fmt::format("{:016x}{:016x}", high, low); }

Hash128 xxh3_128(std::span<const std::byte> bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

Hash128 xxh3_128(std::string_view text) { return xxh3_128(std::as_bytes(std::span(text))); }

struct PieceHash::State {
  XXH3_state_t* xxh = nullptr;
};

PieceHash::PieceHash() : state_(std::make_unique<State>()) {
  state_->xxh = XXH3_createState();
  require(state_->xxh != nullptr && XXH3_128bits_reset(state_->xxh) == XXH_OK, ExitCode::internal,
          "no memory for XXH3");
}

PieceHash::~PieceHash() { XXH3_freeState(state_->xxh); }

void PieceHash::update(std::span<const std::byte> bytes) {
  require(XXH3_128bits_update(state_->xxh, bytes.data(), bytes.size()) == XXH_OK, ExitCode::internal, "XXH3 failed");
}

Hash128 PieceHash::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh);
  return {hash.high64, hash.low64};
}

struct Sha256::Context {
  EVP_MD_CTX* evp = nullptr;
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {
  context_->evp = EVP_MD_CTX_new();
  require(context_->evp != nullptr && EVP_DigestInit_ex(context_->evp, EVP_sha256(), nullptr) == 1, ExitCode::internal,
          "OpenSSL has no SHA-256");
}

Sha256::~Sha256() { EVP_MD_CTX_free(context_->evp); }

void Sha256::update(std::span<const std::byte> bytes) {
  require(EVP_DigestUpdate(context_->evp, bytes.data(), bytes.size()) == 1, ExitCode::internal, "SHA-256 failed");
}

std::string Sha256::hex() {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  require(EVP_DigestFinal_ex(context_->evp, digest.data(), &size) == 1, ExitCode::internal, "SHA-256 failed");
  constexpr const char* kDigits = "0123456789abcdef";  // a million requests have one each: no formatter
  std::string text;
  text.reserve(2 * size);
  for (unsigned int i = 0; i < size; ++i) {
    text += kDigits[digest[i] >> 4];
    text += kDigits[digest[i] & 15];
  }
  return text;
}

std::string sha256_hex(std::span<const std::byte> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex();
}

std::string sha256_hex(std::string_view text) { return sha256_hex(std::as_bytes(std::span(text))); }

}  // namespace bathys::io
