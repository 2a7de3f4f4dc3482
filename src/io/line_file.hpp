// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"
#include "io/file.hpp"

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace bathys::io {

// A line of a file: where it begins, its bytes without the "\n", and whether there was one.
struct FileLine {
  std::int64_t offset = 0;
  std::string_view bytes;  // until the next call
  bool ended = false;
};

// The lines of a regular file, one after the other, in memory for a slab and the longest line.  It ends where the file
// ended when it was opened.
class LineFile {
 public:
  // throws Error(bad_input) when the file cannot be read
  explicit LineFile(const std::string& path, std::size_t slab_bytes = std::size_t{1} << 20);
  // `pulse`: with every slab.  throws Error(bad_input)
  std::optional<FileLine> next(const Pulse& pulse = {});
  // The next line is the one that begins at `offset`, which some line does.
  void go_to(std::int64_t offset);
  [[nodiscard]] std::int64_t bytes() const { return static_cast<std::int64_t>(file_.size()); }

 private:
  bool read_more(const Pulse& pulse);  // false: at the end

  ReadFile file_;
  std::size_t slab_bytes_;
  std::string buffer_;        // of the file, from offset_
  std::int64_t offset_ = 0;   // of buffer_
  std::size_t consumed_ = 0;  // of buffer_
};

}  // namespace bathys::io
