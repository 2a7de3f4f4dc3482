// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace bathys::io {

// The largest count handed to one read(2) or write(2): larger calls are cut.
inline constexpr std::uint64_t kMaxIoBytes = std::uint64_t{1} << 30;
// Alignment of buffers that files are read into.
inline constexpr std::size_t kPageBytes = 4096;

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int fd) : fd_(fd) {}
  Descriptor(Descriptor&& other) noexcept : fd_(other.release()) {}
  Descriptor& operator=(Descriptor&& other) noexcept;
  ~Descriptor();
  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool open() const { return fd_ >= 0; }
  int release();
  // Closes and returns 0 or the errno of close(2): on some file systems a write error shows only here.
  int close();

 private:
  int fd_ = -1;
};

// Page-aligned, uninitialised bytes.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(std::size_t bytes);
  [[nodiscard]] std::byte* data() const { return data_.get(); }
  [[nodiscard]] std::size_t size() const { return size_; }
  // The first `bytes` bytes.
  [[nodiscard]] std::span<std::byte> first(std::size_t bytes) const { return {data_.get(), bytes}; }

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte[], Free> data_;
  std::size_t size_ = 0;
};

// A regular file open for reading at any offset.  Opening never blocks (a FIFO is refused) and follows symbolic links.
//   throws Error(bad_input) naming the file: missing, unreadable, a directory or another kind of file
class ReadFile {
 public:
  explicit ReadFile(std::string path);
  // Fills `out` from `offset`.  throws Error(bad_input) when the file ends before, or cannot be read
  void read_at(std::uint64_t offset, std::span<std::byte> out) const;
  [[nodiscard]] std::uint64_t size() const { return size_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  // Tells the kernel that a range comes next (readahead) or is done with (its cache pages may go).  Advice only.
  void will_need(std::uint64_t offset, std::uint64_t bytes) const;
  void done_with(std::uint64_t offset, std::uint64_t bytes) const;

 private:
  std::string path_;
  Descriptor fd_;
  std::uint64_t size_ = 0;
};

// The whole of a small regular file.  throws Error(bad_input), also when it is larger than `limit`
std::string read_small_file(const std::string& path, std::uint64_t limit = std::uint64_t{1} << 30);

// Reads to the end, once: regular files, pipes, FIFOs and "-" (standard input) alike.  `pulse`: with every piece and
// ten times a second while nothing comes; a caller who was told to stop throws there.
//   throws Error(bad_input)
std::string read_stream(const std::string& path, const Pulse& pulse = {});

// What `head`, the first bytes of a file of `file_bytes` bytes, is when it is no data at all: "a Git LFS pointer, not
// the file itself; run git lfs pull", an HTML page, an empty file, all zeros; empty when it looks like none of these.
std::string describe_non_file(std::string_view head, std::uint64_t file_bytes);

// The text of an errno value.
std::string errno_text(int error);

}  // namespace bathys::io
