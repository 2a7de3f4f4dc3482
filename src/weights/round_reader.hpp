// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"
#include "io/shard_file.hpp"
#include "weights/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace bathys::weights {

// Reads rounds one after another, the next one in a thread of its own while the caller works with the current one.
class RoundReader {
 public:
  // `model` and `rounds` (those that this rank reads, in order) must outlive the reader.  No row is longer than a
  // piece.
  RoundReader(const ShardModel& model, std::vector<const Round*> rounds, bool checksums);
  ~RoundReader();

  // The next round's rows: entry i holds rows [first_row, last_row) of part i, whole, its head included.  Valid until
  // the next call. Where the piece before is not among the rounds, the head's bytes are undefined.
  //   throws Error(bad_input) naming file and dataset
  std::span<const std::span<const std::byte>> next();

  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] double open_s() const { return open_s_; }
  [[nodiscard]] double read_s() const { return read_s_; }  // spent reading, most of it behind the caller's work

 private:
  struct Slab;
  void fill(Slab& slab, const Round& round);
  void start(std::size_t round);
  void copy_head(const Round& before, const Round& round);

  const ShardModel& model_;
  std::vector<const Round*> rounds_;
  bool checksums_;
  std::size_t next_ = 0;       // the round that next() returns
  std::size_t head_room_ = 0;  // bytes kept free in front of a slab for a row's head
  std::vector<std::unique_ptr<Slab>> slabs_;
  std::future<void> reading_;
  std::string open_file_;
  std::unique_ptr<io::ShardFile> shard_;
  std::uint64_t bytes_read_ = 0;
  double open_s_ = 0;
  double read_s_ = 0;
};

}  // namespace bathys::weights
