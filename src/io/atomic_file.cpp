// SPDX-License-Identifier: Apache-2.0
#include "io/atomic_file.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace bathys::io {
namespace {

Descriptor open_for_writing(const std::string& path, int flags) {
  Descriptor fd(::open(path.c_str(), flags | O_CLOEXEC, 0644));
  if (!fd.open()) fail_write(errno, path, "created");
  return fd;
}

void sync(int fd, const std::string& path) {
  // EINVAL: a place that cannot be synchronized, such as a pipe; there is nothing more to do for it.
  if (::fsync(fd) != 0 && errno != EINVAL) fail_write(errno, path, "written");
}

std::string folder_of(const std::string& path) {
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}

}  // namespace

void fail_write(int error, const std::string& path, std::string_view action) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      fail(ExitCode::stopped, "{}: cannot be {}: {}; make room and run the same command again", path, action,
           errno_text(error));
    case EACCES:
    case EPERM:
    case EROFS:
    case ENOENT:
    case ENOTDIR:
    case EISDIR:
    case ENAMETOOLONG:
    case ELOOP:
    case EEXIST:
    case ENOTEMPTY:
      fail(ExitCode::usage, "{}: cannot be {}: {}; choose a place that can be written", path, action,
           errno_text(error));
    default:
      fail(ExitCode::internal, "{}: cannot be {}: {}", path, action, errno_text(error));
  }
}

std::string partial_name(const std::string& path) { return path + ".partial"; }

void write_all(int fd, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), std::min<std::size_t>(bytes.size(), kMaxIoBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(n < 0 ? errno : ENOSPC, path, "written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
  }
}

void write_all_at(int fd, std::uint64_t offset, std::span<const std::byte> bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n =
        ::pwrite(fd, bytes.data(), std::min<std::size_t>(bytes.size(), kMaxIoBytes), static_cast<off_t>(offset));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_write(n < 0 ? errno : ENOSPC, path, "written");
    bytes = bytes.subspan(static_cast<std::size_t>(n));
    offset += static_cast<std::uint64_t>(n);
  }
}

void start_writing_out(int fd, std::uint64_t offset, std::uint64_t bytes) {
  ::sync_file_range(fd, static_cast<off64_t>(offset), static_cast<off64_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

void sync_data(int fd, const std::string& path) {
  if (::fdatasync(fd) != 0 && errno != EINVAL) fail_write(errno, path, "written");
}

void sync_folder(const std::string& path) {
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd.open()) fail_write(errno, path, "written");
  sync(fd.get(), path);
}

void publish(const std::string& partial, const std::string& path) {
  {
    Descriptor fd = open_for_writing(partial, O_WRONLY);
    sync(fd.get(), partial);
    if (const int error = fd.close()) fail_write(error, partial, "written");
  }
  if (std::rename(partial.c_str(), path.c_str()) != 0) fail_write(errno, path, "created");
  sync_folder(folder_of(path));
}

void make_folder(const std::string& path) {
  require(!path.empty(), ExitCode::usage, "the output folder has an empty name; name a folder");
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail_write(error.value(), path, "created");
  require(std::filesystem::is_directory(path, error), ExitCode::usage,
          "{} is not a folder; choose another output folder", path);
}

AtomicFile::AtomicFile(std::string path)
    : path_(std::move(path)),
      partial_(partial_name(path_)),
      fd_(open_for_writing(partial_, O_WRONLY | O_CREAT | O_TRUNC)) {}

AtomicFile::~AtomicFile() {
  if (!committed_) ::unlink(partial_.c_str());
}

void AtomicFile::write(std::span<const std::byte> bytes) { write_all(fd_.get(), bytes, path_); }

void AtomicFile::commit() {
  if (const int error = fd_.close()) fail_write(error, path_, "written");
  publish(partial_, path_);
  committed_ = true;
}

void write_file(const std::string& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

FolderLock::FolderLock(const std::string& folder) {
  const std::string path = folder + "/.lock";
  fd_ = open_for_writing(path, O_RDWR | O_CREAT);
  if (::flock(fd_.get(), LOCK_EX | LOCK_NB) != 0) {
    require(errno == EWOULDBLOCK, ExitCode::usage, "{}: cannot be locked: {}", path, errno_text(errno));
    std::array<char, 32> text{};
    const ssize_t n = ::pread(fd_.get(), text.data(), text.size() - 1, 0);
    fail(ExitCode::usage, "{}: in use by process {}; wait for it or choose another folder", folder,
         n > 0 ? std::string(text.data(), static_cast<std::size_t>(n)) : std::string("(unknown)"));
  }
  const std::string pid = std::to_string(::getpid());
  if (::ftruncate(fd_.get(), 0) == 0) write_all_at(fd_.get(), 0, std::as_bytes(std::span(pid)), path);
}

FolderLock::~FolderLock() {
  // The file stays (removing it would race with the next holder), but says nothing: equal runs leave equal folders.
  [[maybe_unused]] const int emptied = ::ftruncate(fd_.get(), 0);
}

}  // namespace bathys::io
