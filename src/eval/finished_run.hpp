// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/json.hpp"
#include "io/line_file.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>

// The answers of a finished run, read back from its folder.
namespace bathys::eval {

struct Answer {
  std::string line;  // of results.jsonl
  Json record;       // the same, parsed
  std::string custom_id, task;
  std::int32_t repeat = 0;
  bool ok = false;
  Json scores;  // of scores.jsonl: an object of numbers
};

// Reads results.jsonl and scores.jsonl side by side, in their order; neither has to fit in memory.
class FinishedRun {
 public:
  //   throws Error(usage) when the run is not finished, Error(bad_input) when the folder is none of a run
  explicit FinishedRun(const std::string& folder);

  // Nothing after the last answer.  throws Error(bad_input) for lines that are no answers, and where a file cannot be
  // read to its end
  std::optional<Answer> next();

  // What the run says its answers depend on (manifest.json) and how it ran (options of summary.json), but for the
  // hash of the whole request file.
  [[nodiscard]] const std::map<std::string, std::string>& description() const { return description_; }
  [[nodiscard]] const std::string& folder() const { return folder_; }
  // Where the next answer begins in the two files.
  struct Place {
    std::int64_t result = 0, scores = 0;
  };
  [[nodiscard]] Place place() const { return place_; }
  void go_to(const Place& place);

 private:
  std::string folder_;
  std::map<std::string, std::string> description_;
  io::LineFile results_, scores_;
  Place place_;
};

// Finds answers of a run by their key.
class RunLookup {
 public:
  explicit RunLookup(FinishedRun& run);  // reads all of it once; `run` must outlive this
  [[nodiscard]] std::optional<Answer> find(const std::string& custom_id, std::int32_t repeat) const;
  [[nodiscard]] std::int64_t size() const { return static_cast<std::int64_t>(places_.size()); }

 private:
  FinishedRun* run_;
  std::unordered_map<std::string, FinishedRun::Place> places_;
};

}  // namespace bathys::eval
