// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace bathys::io {

// Throws for a failed write, creation or rename: Error(stopped) when the disk, quota or file-size limit is full (run
// the same command again), Error(usage) when the place cannot be written, else Error(internal).
[[noreturn]] void fail_write(int error, const std::string& path, std::string_view action);

// The name under which an output is written until it is whole.  One fixed name in the same folder: a rerun overwrites
// what a killed run left, and rename(2) stays inside one file system.
std::string partial_name(const std::string& path);

// Writes all bytes at the descriptor's position, or at `offset`.  throws as fail_write
void write_all(int fd, std::span<const std::byte> bytes, const std::string& path);
void write_all_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes, const std::string& path);

// Asks the kernel to begin writing a range to the disk, so that not all of it waits for the end.  Advice only.
void start_writing_out(int fd, std::uint64_t offset, std::uint64_t bytes);

// Waits until the data of a file are on the disk.  throws as fail_write
void sync_data(int fd, const std::string& path);

// Waits until the names in a folder are on the disk: a file that was made or removed there is so after a power loss
// too. throws as fail_write
void sync_folder(const std::string& path);

// Makes a finished partial file durable and gives it its name: fsync of the file, rename, fsync of the folder.  throws
// as fail_write
void publish(const std::string& partial, const std::string& path);

// Creates a folder and those above it.  throws Error(usage) when that is not possible
void make_folder(const std::string& path);

// A file that exists under its name either whole or not at all.  Written under partial_name; a file that was not
// committed is removed.
class AtomicFile {
 public:
  explicit AtomicFile(std::string path);
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;
  ~AtomicFile();
  void write(std::span<const std::byte> bytes);
  void write(std::string_view text) { write(std::as_bytes(std::span(text))); }
  // fsync, close, rename, fsync of the folder.
  void commit();

 private:
  std::string path_;
  std::string partial_;
  Descriptor fd_;
  bool committed_ = false;
};

// The whole content of a small file at once.
void write_file(const std::string& path, std::string_view text);

// Holds a folder for one process (flock on `<folder>/.lock`), so that two runs cannot write the same outputs.
//   throws Error(usage) naming the holder's process id while another living process holds it
class FolderLock {
 public:
  explicit FolderLock(const std::string& folder);
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  ~FolderLock();

 private:
  Descriptor fd_;
};

}  // namespace bathys::io
