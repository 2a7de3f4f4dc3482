// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/pulse.hpp"
#include "core/timer.hpp"
#include "eval/layer_rows.hpp"
#include "eval/request.hpp"
#include "eval/task.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

// The journal of a run: each start writes files of its own, journal/<start>-<rank>.jsonl, and never touches those
// before it, so a torn last line cannot fuse with a new one.  Lines:
//   {"start":{...}}                 first line of a file: how this start ran
//   {"record":{...},"item":{...}}   one answer; the record is reproducible, the item (time, rank, reuse) is not;
//                                   "instead_of" names the failed record that this one was asked for to replace,
//                                   "cache_bytes" is what one takes that did not fit
//   {"progress":{...}}              seconds and rows of this start so far; the last one counts
// Each ends with "sha256", of what the run's answers depend on (`run`) and all bytes of the line before that member: a
// line of another run is none of this one, however it came here.
namespace bathys::eval {

struct PhaseSeconds {
  double load_s = 0, prepare_s = 0, prefill_s = 0, decode_s = 0, write_s = 0, total_s = 0;
};

// What a start does in how long, summed over the starts of a run.
struct Progress : PhaseSeconds {
  std::int64_t prefill_rows = 0, decode_rows = 0;
  LayerRows layers;
  void add(const Progress& other);   // of another start
  void join(const Progress& other);  // of another group in the same start: the longest seconds, the rows of both
};

// How a start runs.
struct StartHeader {
  int number = 1;    // 1, 2, ..
  std::string time;  // ISO 8601, UTC
  int ranks = 1;
  std::string layout;
  double memory_gib = 0;  // 0: what the nodes have left
};

// Where a record lies, and enough to compare it with another one.
struct RecordPlace {
  int file = -1;                                 // index into RecordTable's files; < 0: no record
  std::int64_t offset = 0, bytes = 0;            // of the record's text
  std::int64_t item_offset = 0, item_bytes = 0;  // of the item's
  io::Hash128 hash;
  bool ok = false;
  bool does_not_fit = false;
  std::int64_t cache_bytes = 0;  // of one that does not fit: what it takes, 0 where the journal does not say
  [[nodiscard]] bool present() const { return file >= 0; }
};

// What a journal file's name says, "<start>-<rank>.jsonl".
struct JournalName {
  int start = 0, rank = 0;  // start 0: another name
};
[[nodiscard]] JournalName read_journal_name(const std::string& file);
[[nodiscard]] std::string journal_name(const JournalName& name);

// Which answers of a request file are on record, and where.
class RecordTable {
 public:
  // `run`: journal_run() of the run whose journals are read.
  explicit RecordTable(const std::vector<Request>& requests, std::string run = "");

  // Reads every journal file of the folder, in the order of their names.  Equal records of one key collapse.  A failed
  // one gives way where it may: when it did not fit, which depends on the room, or when another record says that it
  // was asked for instead of it.  Of several failures the last one counts, but one that did not fit only where all did
  // not.
  //   throws Error(bad_input) when two others of one key differ, or a file cannot be read
  void read(const std::string& folder, const Pulse& pulse = {});
  // As if the failed records (or of those that did not fit the ones that fit into `cache_bytes`; 0: no bound) had not
  // been written, until another record of the same key is read: then both count by the rules above.
  void forget_failed();
  void forget_misfits(std::int64_t cache_bytes);
  // The failed record that was forgotten and not been replaced.
  [[nodiscard]] std::optional<io::Hash128> forgotten(std::size_t request, std::int32_t repeat) const;

  [[nodiscard]] const RecordPlace& at(std::size_t request, std::int32_t repeat) const;
  [[nodiscard]] std::int64_t n_wanted() const { return static_cast<std::int64_t>(places_.size()); }
  [[nodiscard]] std::int64_t n_present() const { return n_present_; }
  [[nodiscard]] std::int64_t n_failed() const { return n_failed_; }
  [[nodiscard]] std::int64_t n_misfits() const;  // of the failed ones
  [[nodiscard]] std::int64_t damaged_lines() const { return damaged_lines_; }
  [[nodiscard]] int last_start() const { return last_start_; }  // 0: none
  [[nodiscard]] Progress progress() const;                      // of all starts read

  // Reads what a rank has written in this start.
  //   throws Error(stopped) when the file is shorter than its writer says: the file system does not show it yet
  void read_writer(const std::string& folder, int start, int rank, std::int64_t bytes, const Pulse& pulse = {});

  // The text of a record or item, read back from its file.
  [[nodiscard]] std::string record(const RecordPlace& place) const;
  [[nodiscard]] std::string item(const RecordPlace& place) const;
  [[nodiscard]] int start_of(const RecordPlace& place) const;

 private:
  struct File {
    std::string path;
    int start = 0;
    StartHeader header;
    mutable std::unique_ptr<io::ReadFile> reader;  // of the files in open_
  };
  void read_file(const std::string& path, int start, std::int64_t least_bytes, const Pulse& pulse);
  // Keeps the record that counts; what contradicts each other is noted.
  void put(std::size_t index, const RecordPlace& place, const std::optional<io::Hash128>& instead_of);
  void require_no_dispute() const;
  [[nodiscard]] std::size_t index_of(std::size_t request, std::int32_t repeat) const;
  void forget(std::size_t index);
  bool read_line(std::string_view line, std::int64_t offset, int file, Progress& progress);
  [[nodiscard]] std::string read_text(int file, std::int64_t offset, std::int64_t bytes) const;

  const std::vector<Request>* requests_;
  std::string run_;
  std::unordered_map<std::string_view, std::size_t> index_;  // custom_id -> the first request of its line
  std::vector<std::size_t> first_;                           // request -> its first place
  std::vector<RecordPlace> places_;
  std::unordered_map<std::size_t, RecordPlace> forgotten_;  // failed records by place, which stands empty
  std::vector<File> files_;
  mutable std::deque<int> open_;  // files read from, the one that was opened first in front
  std::int64_t n_present_ = 0, n_failed_ = 0, damaged_lines_ = 0;
  int last_start_ = 0;
  std::map<int, Progress> progress_;  // by start
  struct History {
    std::vector<RecordPlace> different;  // records that found room
    std::vector<io::Hash128> replaced;   // failed ones that were asked for again
  };
  std::map<std::size_t, History> histories_;  // of places where there is either
};

// Writes one journal file.  Each line is handed to the system at once, so that it survives the death of the process,
// and is made durable every kSyncLines lines or `sync_seconds` seconds, if sync_if_due() is called that often, and by
// sync().
//   throws as io::fail_write; after a failed write the file must not be used any more
class JournalWriter {
 public:
  static constexpr int kSyncLines = 256;
  static constexpr double kSyncSeconds = 5;

  // Creates journal/<start>-<rank>.jsonl in `folder`, which must not exist yet; its name is on the disk then.  `run`:
  // journal_run() of the run.
  JournalWriter(const std::string& folder, const StartHeader& header, int rank, std::string run = "",
                double sync_seconds = kSyncSeconds);
  // `instead_of`: the failed record that this one was asked for to replace.
  void append(const Record& record, std::string_view item, const std::optional<io::Hash128>& instead_of = {});
  void append_progress(const Progress& progress);
  void sync();
  void sync_if_due();
  [[nodiscard]] std::int64_t bytes() const { return bytes_; }  // written so far

 private:
  void write(std::string_view body);  // of a line: its object without the closing brace

  std::string path_, run_;
  io::Descriptor fd_;
  double sync_seconds_;
  std::int64_t bytes_ = 0;
  int unsynced_ = 0;  // lines
  Timer since_sync_;
};

}  // namespace bathys::eval
