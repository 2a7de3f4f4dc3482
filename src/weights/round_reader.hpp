// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"
#include "io/read_ahead.hpp"
#include "io/shard_file.hpp"
#include "weights/load.hpp"
#include "weights/schedule.hpp"

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace bathys::weights {

// Reads rounds one after another, the next ones in threads of their own while the caller works with the current one.
// The pieces of a synthetic model are made instead of read.
class RoundReader {
 public:
  // `model` and `rounds` (those that this rank reads, in order) must outlive the reader.  No row is longer than a
  // piece.
  RoundReader(const ShardModel& model, std::vector<const Round*> rounds, const LoadOptions& options);

  // The next round's rows: entry i holds rows [first_row, last_row) of part i, whole, its head included.  Valid until
  // the next call. Where the piece before is not among the rounds, the head's bytes are undefined.
  //   throws Error(bad_input) naming file and dataset
  std::span<const std::span<const std::byte>> next();

  // What was read so far and the seconds of all threads together; while nothing is under way.
  [[nodiscard]] std::uint64_t bytes_read() const { return bytes_read_; }
  [[nodiscard]] double open_s() const { return open_s_; }
  [[nodiscard]] double read_s() const { return read_s_; }
  [[nodiscard]] double read_calls_s() const { return read_calls_s_; }

 private:
  // One round in memory: room for a head, then the parts one after another.
  struct Slab {
    io::Buffer memory;
    std::vector<std::span<const std::byte>> rows;
  };
  using Shard = std::shared_ptr<const io::ShardFile>;
  void fill(Slab& slab, std::size_t number);
  [[nodiscard]] Shard open(const std::string& file);
  [[nodiscard]] Shard opened(const std::string& file);
  void will_need(std::size_t number);
  void copy_head(const Round& before, const Round& round, const Slab& from, Slab& to) const;

  const ShardModel& model_;
  std::vector<const Round*> rounds_;
  bool checksums_;
  std::size_t next_ = 0;       // the round that next() returns
  std::size_t head_room_ = 0;  // bytes kept free in front of a slab for a row's head
  std::mutex opening_;         // HDF5 is not for several threads at once; the others read on meanwhile
  std::mutex mutex_;           // guards the rest
  std::deque<std::pair<std::string, Shard>> shards_;  // the last ones opened
  std::uint64_t bytes_read_ = 0;
  double open_s_ = 0;
  double read_s_ = 0;
  double read_calls_s_ = 0;
  std::optional<io::ReadAhead<Slab>> ahead_;  // last: its threads use what stands above
};

}  // namespace bathys::weights
