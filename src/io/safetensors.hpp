// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/atomic_file.hpp"
#include "io/file.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::io {

// One tensor of a safetensors file: its payload lies row-major at [offset, offset + bytes) of the file, little-endian,
// and need not be aligned to its element size.
struct TensorInfo {
  std::string name;
  std::string dtype;  // as spelled in the header: "I8", "F8_E4M3", "F8_E8M0", "BF16", "F32", or any other
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;
  std::uint64_t bytes = 0;
};

// Bits of one element, or nothing for a dtype this program has no size for (such a tensor is refused when somebody
// wants it).
std::optional<int> dtype_bits(std::string_view dtype);

// "[5120, 512]", for messages.
std::string shape_text(std::span<const std::int64_t> shape);

// Parses a header strictly: one JSON object, no name twice; each tensor has exactly dtype, shape and data_offsets;
// sizes agree with shape and dtype; the payloads cover [0, payload_bytes) once, without a gap or an overlap.
// `__metadata__` is allowed and skipped.
//   name            the file's name for messages
//   payload_offset  position of the payload in the file (8 + header length)
//   returns the tensors by ascending offset;  throws Error(bad_input) naming file and tensor
std::vector<TensorInfo> parse_safetensors_header(std::string_view header, std::uint64_t payload_offset,
                                                 std::uint64_t payload_bytes, const std::string& name);

// A safetensors file open for reading.  The header alone is held in memory.
//   throws Error(bad_input): not such a file (Git LFS pointers, HTML pages, empty files and zeros are called by their
//   names), truncated, or inconsistent
class SafetensorsFile {
 public:
  explicit SafetensorsFile(const std::string& path);
  [[nodiscard]] const std::string& path() const { return file_.path(); }
  [[nodiscard]] const ReadFile& file() const { return file_; }
  [[nodiscard]] const std::vector<TensorInfo>& tensors() const { return tensors_; }
  // SHA-256 of the header's JSON bytes: with the file's size, the identity of its structure.
  [[nodiscard]] const std::string& header_sha256() const { return header_sha256_; }

 private:
  ReadFile file_;
  std::vector<TensorInfo> tensors_;
  std::string header_sha256_;
};

// Writes a safetensors file atomically: construct with all tensors (offset is ignored), append the payloads in that
// order in pieces of any size, commit.  The header is padded to 8 bytes, so payloads start aligned.
class SafetensorsWriter {
 public:
  SafetensorsWriter(const std::string& path, const std::vector<TensorInfo>& tensors);
  void append(std::span<const std::byte> bytes);
  // throws Error(internal) unless exactly the promised bytes were appended
  void commit();

 private:
  std::string path_;
  AtomicFile file_;
  std::uint64_t promised_ = 0;
  std::uint64_t appended_ = 0;
};

}  // namespace bathys::io
