// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "io/file.hpp"

#include <string>
#include <utility>
#include <vector>

// The folder of one run.  The same command in the same folder goes on where the last start stopped.
namespace bathys::eval {

// What the numbers of a run depend on, by name ("requests_sha256", "seed", ...), in a fixed order.
using RunIdentity = std::vector<std::pair<std::string, std::string>>;

// The files of the folder itself; beside them lie those of journal/ and, while one is written, its io::partial_name.
inline constexpr const char* kRunFiles[] = {
    "results.jsonl", "results.partial.jsonl", "failed.jsonl", "items.jsonl",   "scores.jsonl", "openai_output.jsonl",
    "summary.json",  "openai_errors.jsonl",   "status.json",  "manifest.json", "run.lock"};

// Rank 0's hold on the folder: the lock and the manifest.
class RunFolder {
 public:
  // Creates the folder if need be, takes its lock (`run.lock`, released by the system when the holder is gone, however
  // it went) and compares manifest.json with `identity`, or writes it on the first start.
  //   throws Error(usage) when the folder cannot be written, another process holds it, or anything in the identity
  //   differs (naming the first)
  RunFolder(std::string path, const RunIdentity& identity);

  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] std::string file(const std::string& name) const { return path_ + "/" + name; }
  [[nodiscard]] const std::string& first_start() const { return first_start_; }  // time, ISO 8601

 private:
  void take_lock();
  void compare_or_write(const RunIdentity& identity);

  std::string path_;
  std::string first_start_;
  io::Descriptor lock_;
};

// Now, as "2026-01-31T12:00:00Z".
[[nodiscard]] std::string utc_now();
[[nodiscard]] std::string host_name();

}  // namespace bathys::eval
