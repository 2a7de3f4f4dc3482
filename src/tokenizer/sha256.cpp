// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/sha256.hpp"

#include "core/error.hpp"

#include <array>

#include <fmt/format.h>
#include <openssl/evp.h>

namespace bathys::tokenizer {

std::string sha256_hex(std::span<const std::byte> bytes) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  const int ok = EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha256(), nullptr);
  require(ok == 1 && size == 32, ExitCode::internal, "OpenSSL cannot compute SHA-256");
  std::string hex;
  for (unsigned int i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

}  // namespace bathys::tokenizer
