// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace bathys::io {

// One line of a text: its number, counted by "\n" from 1, and its bytes without the "\n".
struct Line {
  std::int64_t number = 0;
  std::string_view bytes;
};

// Cuts a text into lines, as JSON Lines means it.
//   * A line ends at "\n" and nowhere else: U+2028, U+2029, U+0085, vertical tab and form feed are content.
//   * A "\r" before the "\n" stays part of the line's bytes (JSON counts it as white space, hashes of the line cover
//   it).
//   * A last line without "\n" counts; after a final "\n" there is no further, empty line.
//   * A UTF-8 byte order mark at the start of the text belongs to no line.
// The text must outlive the reader and its lines: hold it in memory once (read_stream), so that a pipe can be read.
class LineReader {
 public:
  explicit LineReader(std::string_view text);
  std::optional<Line> next();

 private:
  std::string_view rest_;
  std::int64_t number_ = 0;
};

// Whether a line holds only spaces, tabs and carriage returns: counted, but no record.
bool is_blank(std::string_view line);

}  // namespace bathys::io
