// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>

namespace bathys::io {

// Standard output for commands whose product is text.  Every byte is checked: a full disk or closed descriptor ends in
// an Error, never in a command that lost its output and returned 0.  A reader that went away (`| head`) ends the
// process quietly by SIGPIPE.
//   throws as fail_write (atomic_file.hpp); a descriptor that is closed is Error(usage)
class Output {
 public:
  explicit Output(int fd = 1, std::string name = "standard output");
  Output(const Output&) = delete;
  Output& operator=(const Output&) = delete;

  void write(std::string_view text);
  template <class... Args>
  void print(fmt::format_string<Args...> format, Args&&... args) {
    write(fmt::format(format, std::forward<Args>(args)...));
  }
  void flush();
  // Writes what is buffered and asks the file system whether all of it arrived.  What was not finished is not written.
  void finish();

 private:
  int fd_;
  std::string name_;
  std::string buffer_;
};

// Once at the start of main: gives closed descriptors 0 to 2 a place that refuses use, so that no journal or shard can
// get such a number and receive messages; and ignores SIGXFSZ, so that a file-size limit is an error with a cause line
// (exit code 75) instead of a death.
void guard_standard_descriptors();

}  // namespace bathys::io
