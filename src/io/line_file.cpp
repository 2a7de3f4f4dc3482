// SPDX-License-Identifier: Apache-2.0
#include "io/line_file.hpp"

#include <algorithm>
#include <iterator>
#include <span>

namespace bathys::io {

LineFile::LineFile(const std::string& path, std::size_t slab_bytes) : file_(path), slab_bytes_(slab_bytes) {}

bool LineFile::read_more(const Pulse& pulse) {
  beat(pulse);
  buffer_.erase(0, consumed_);
  offset_ += static_cast<std::int64_t>(consumed_);
  consumed_ = 0;
  const std::size_t held = buffer_.size();
  const std::uint64_t from = static_cast<std::uint64_t>(offset_) + held;
  const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(slab_bytes_, file_.size() - from));
  if (bytes == 0) return false;
  buffer_.resize(held + bytes);
  file_.read_at(from, std::as_writable_bytes(std::span(buffer_).subspan(held)));
  return true;
}

void LineFile::go_to(std::int64_t offset) {
  if (offset >= offset_ && offset <= offset_ + std::ssize(buffer_)) {
    consumed_ = static_cast<std::size_t>(offset - offset_);
    return;
  }
  buffer_.clear();
  consumed_ = 0;
  offset_ = offset;
}

std::optional<FileLine> LineFile::next(const Pulse& pulse) {
  std::size_t searched = consumed_;
  for (;;) {
    const std::size_t end = buffer_.find('\n', searched);
    if (end != std::string::npos) {
      const FileLine line{offset_ + static_cast<std::int64_t>(consumed_),
                          std::string_view(buffer_).substr(consumed_, end - consumed_), true};
      consumed_ = end + 1;
      return line;
    }
    searched = buffer_.size() - consumed_;  // what is held moves to the front
    if (!read_more(pulse)) break;
  }
  if (buffer_.empty()) return std::nullopt;
  consumed_ = buffer_.size();
  return FileLine{offset_, buffer_, false};
}

}  // namespace bathys::io
