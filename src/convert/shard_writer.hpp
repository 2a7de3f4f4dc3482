// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"
#include "io/read_ahead.hpp"

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace bathys::convert {

// What the index says of a dataset of the table, before it has an offset and checksums.
io::ShardDataset describe(const catalog::DatasetSpec& spec);

struct ShardWriteOptions {
  // What must be unchanged for a file that was begun to be continued: whatever changes with the source's payload.
  std::string source_state;
  std::uint64_t mark_bytes = std::uint64_t{4} << 30;  // payload after which the place reached is noted on disk
};

// Writes one shard file of the source's table piece by piece: all its datasets, their attributes and piece checksums,
// under a temporary name until it is whole and durable.  The file's bytes depend on the source alone.  While a piece is
// written the next ones are read, checked (scale_rules.hpp) and hashed in threads of their own; what they hold, three
// pieces, is all the payload in memory.
//
// Every mark_bytes the data are made durable and `<file>.partial.mark` notes how far they go; a file begun by another
// writer for the same source_state is continued from there.
//   throws Error(bad_input) for payload that breaks a rule, as io::fail_write for a full disk or the like
class ShardWriter {
 public:
  ShardWriter(const SourceModel& source, const std::string& folder, const std::string& file,
              const ShardWriteOptions& options);
  ShardWriter(const ShardWriter&) = delete;
  ShardWriter& operator=(const ShardWriter&) = delete;
  // Leaves the temporary file as it is.
  ~ShardWriter() = default;

  // Writes the next piece and returns its bytes; once all are written, gives the file its name and returns nothing.
  std::optional<std::uint64_t> step();
  // Makes durable and notes what is written, to be continued later.
  void suspend();
  // Removes the temporary file and its mark.
  void discard() noexcept;
  // After a failure that says nothing against the data (a full disk): leaves what a mark vouches for to a later writer,
  // removes what none can continue.
  void leave() noexcept;
  // Payload that an earlier writer had written.
  [[nodiscard]] std::uint64_t resumed_bytes() const { return resumed_bytes_; }

 private:
  struct Piece {
    std::size_t dataset = 0;  // position in datasets_
    std::uint64_t number = 0;
  };
  struct Slot {
    io::Buffer buffer;
    std::size_t bytes = 0;
    io::Hash128 hash;
  };
  struct Place {  // of a dataset in the file
    std::uint64_t data = 0;
    std::uint64_t checksums = 0;
  };

  void open();
  [[nodiscard]] std::size_t marked_pieces() const;
  void read_places();
  void list_pieces();
  void fill(std::size_t piece, Slot& slot) const;
  void will_need(std::size_t piece) const;
  void mark();
  void finish();

  const SourceModel& source_;
  std::string path_;
  std::string partial_;
  std::string mark_path_;
  ShardWriteOptions options_;
  std::vector<std::size_t> datasets_;  // positions in the source's table
  std::vector<Place> places_;
  std::vector<Piece> pieces_;
  io::Descriptor fd_;
  std::size_t next_ = 0;  // piece to be written
  std::uint64_t unmarked_bytes_ = 0;
  std::uint64_t resumed_bytes_ = 0;
  std::optional<io::ReadAhead<Slot>> ahead_;  // last: its threads use what stands above
};

// Names of what a writer of `path` may leave beside it.
[[nodiscard]] std::vector<std::string> leftover_names(const std::string& path);

// Whether `folder` holds shard `file` of this very source, whole.  A file that is damaged or of another format is not.
//   throws Error(usage) when it is a sound shard of another model, which must not be overwritten
bool is_complete_shard(const SourceModel& source, const std::string& folder, const std::string& file);

// Creates shard `file` with structure and attributes under its own name and no payload at all: holes on disk.
void create_empty_shard(const SourceModel& source, const std::string& folder, const std::string& file);

// Adds to `index` what the finished shards say: each dataset's offset and the checksum of its piece checksums, each
// file's size.
void collect_shards(const SourceModel& source, const std::string& folder, io::ShardIndex& index);

}  // namespace bathys::convert
