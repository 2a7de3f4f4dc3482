// SPDX-License-Identifier: Apache-2.0
#include "io/output.hpp"

#include "core/error.hpp"
#include "io/atomic_file.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <span>

#include <fcntl.h>
#include <unistd.h>

namespace bathys::io {
namespace {

constexpr std::size_t kBufferBytes = std::size_t{1} << 16;

[[noreturn]] void fail_output(int error, const std::string& name) {
  if (error == EPIPE) {  // the reader has seen enough: end as if SIGPIPE had not been ignored
    std::signal(SIGPIPE, SIG_DFL);
    std::raise(SIGPIPE);
  }
  require(error != EBADF, ExitCode::usage, "{} is closed; this command needs it", name);
  fail_write(error, name, "written");
}

}  // namespace

Output::Output(int fd, std::string name) : fd_(fd), name_(std::move(name)) {}

void Output::write(std::string_view text) {
  buffer_ += text;
  if (buffer_.size() >= kBufferBytes) flush();
}

void Output::flush() {
  std::string_view rest = buffer_;
  while (!rest.empty()) {
    const ssize_t n = ::write(fd_, rest.data(), std::min<std::size_t>(rest.size(), kMaxIoBytes));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) fail_output(n < 0 ? errno : ENOSPC, name_);
    rest.remove_prefix(static_cast<std::size_t>(n));
  }
  buffer_.clear();
}

void Output::finish() {
  flush();
  // Some file systems report a failed write only at close: closing a copy asks them without giving up the descriptor.
  Descriptor copy(::dup(fd_));
  if (!copy.open()) fail_output(errno, name_);
  if (const int error = copy.close()) fail_output(error, name_);
}

void guard_standard_descriptors() {
  for (int fd = 0; fd <= 2; ++fd) {
    if (::fcntl(fd, F_GETFD) >= 0 || errno != EBADF) continue;
    // The wrong direction on purpose: reading from or writing to what the caller closed fails instead of vanishing.
    // The lowest free number is fd itself, all below it being open by now; it stays open for the life of the process.
    [[maybe_unused]] const int opened = ::open("/dev/null", fd == 0 ? O_WRONLY : O_RDONLY);
  }
  std::signal(SIGXFSZ, SIG_IGN);
}

}  // namespace bathys::io
