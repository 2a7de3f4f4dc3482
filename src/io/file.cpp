// SPDX-License-Identifier: Apache-2.0
#include "io/file.hpp"

#include "core/error.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <new>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

namespace bathys::io {
namespace {

constexpr std::size_t kLargePageBytes = std::size_t{2} << 20;
constexpr std::size_t kStreamBlock = std::size_t{1} << 20;
constexpr int kPollMs = 100;

const char* kind_of(mode_t mode) {
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISFIFO(mode)) return "a pipe";
  if (S_ISCHR(mode)) return "a character device";
  if (S_ISSOCK(mode)) return "a socket";
  return "not a regular file";
}

// Waits until a descriptor has something to read, or has ended.  A FIFO that nobody has opened for writing yet has
// neither.
void wait_for_input(int fd, const Pulse& pulse) {
  pollfd asked{fd, POLLIN, 0};
  while (::poll(&asked, 1, kPollMs) == 0 || asked.revents == 0) beat(pulse);
}

// Appends what is left of a descriptor.
void append_all(int fd, const std::string& name, std::string& out, const Pulse& pulse) {
  for (;; beat(pulse)) {
    wait_for_input(fd, pulse);
    const std::size_t old = out.size();
    out.resize(old + kStreamBlock);
    const ssize_t got = ::read(fd, out.data() + old, kStreamBlock);
    const int error = errno;
    out.resize(old + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (got == 0) return;
    if (got < 0 && error != EINTR && error != EAGAIN)
      fail(ExitCode::bad_input, "{}: cannot be read: {}", name, errno_text(error));
  }
}

}  // namespace

std::string errno_text(int error) { return std::system_category().message(error); }

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = other.release();
  }
  return *this;
}

Descriptor::~Descriptor() { close(); }

int Descriptor::release() { return std::exchange(fd_, -1); }

int Descriptor::close() {
  if (fd_ < 0) return 0;
  return ::close(release()) == 0 ? 0 : errno;
}

Buffer::Buffer(std::size_t bytes) : size_(bytes) {
  // Large ones in large pages where the kernel gives them: at some gigabytes a second the faults of small ones are most
  // of the work.
  const std::size_t alignment = bytes >= 2 * kLargePageBytes ? kLargePageBytes : kPageBytes;
  const std::size_t rounded = (std::max<std::size_t>(bytes, 1) + alignment - 1) / alignment * alignment;
  data_.reset(static_cast<std::byte*>(std::aligned_alloc(alignment, rounded)));
  if (!data_) throw std::bad_alloc();
  if (alignment == kLargePageBytes) ::madvise(data_.get(), rounded, MADV_HUGEPAGE);
}

void Buffer::Free::operator()(std::byte* p) const { std::free(p); }

ReadFile::ReadFile(std::string path) : path_(std::move(path)) {
  // O_NONBLOCK: a FIFO without a writer must not hang us; regular files ignore it.
  fd_ = Descriptor(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(fd_.open(), ExitCode::bad_input, "{}: cannot be opened: {}", path_, errno_text(errno));
  struct stat status {};
  require(::fstat(fd_.get(), &status) == 0, ExitCode::bad_input, "{}: {}", path_, errno_text(errno));
  require(S_ISREG(status.st_mode), ExitCode::bad_input, "{} is {}, expected a regular file", path_,
          kind_of(status.st_mode));
  size_ = static_cast<std::uint64_t>(status.st_size);
}

void ReadFile::read_at(std::uint64_t offset, std::span<std::byte> out) const {
  std::size_t done = 0;
  while (done < out.size()) {
    const std::size_t count = std::min<std::size_t>(out.size() - done, kMaxIoBytes);
    const ssize_t got = ::pread(fd_.get(), out.data() + done, count, static_cast<off_t>(offset + done));
    if (got < 0 && errno == EINTR) continue;
    require(got >= 0, ExitCode::bad_input, "{}: cannot be read at byte {}: {}", path_, offset + done,
            errno_text(errno));
    require(got > 0, ExitCode::bad_input, "{}: ends at byte {}, expected bytes up to {}: the file is truncated", path_,
            offset + done, offset + out.size());
    done += static_cast<std::size_t>(got);
  }
}

void ReadFile::will_need(std::uint64_t offset, std::uint64_t bytes) const {
  ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_WILLNEED);
}

void ReadFile::done_with(std::uint64_t offset, std::uint64_t bytes) const {
  ::posix_fadvise(fd_.get(), static_cast<off_t>(offset), static_cast<off_t>(bytes), POSIX_FADV_DONTNEED);
}

std::string read_small_file(const std::string& path, std::uint64_t limit) {
  const ReadFile file(path);
  require(file.size() <= limit, ExitCode::bad_input, "{}: has {} bytes, at most {} are expected here", path,
          file.size(), limit);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read_at(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string read_stream(const std::string& path, const Pulse& pulse) {
  std::string out;
  if (path == "-") {
    append_all(STDIN_FILENO, "standard input", out, pulse);
    return out;
  }
  // O_NONBLOCK: the wait for a FIFO's writer is ours, so that it can be ended.
  const Descriptor fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  require(fd.open(), ExitCode::bad_input, "{}: cannot be opened: {}", path, errno_text(errno));
  append_all(fd.get(), path, out, pulse);
  return out;
}

std::string describe_non_file(std::string_view head, std::uint64_t file_bytes) {
  if (file_bytes == 0) return "an empty file";
  if (head.starts_with("version https://git-lfs")) return "a Git LFS pointer, not the file itself; run `git lfs pull`";
  const std::size_t first = head.find_first_not_of(" \t\r\n");
  if (first != std::string_view::npos && head[first] == '<')
    return "an HTML or XML page, not the file itself; download it again";
  if (head.find_first_not_of('\0') == std::string_view::npos) return "zeros from its first byte on; download it again";
  return {};
}

}  // namespace bathys::io
