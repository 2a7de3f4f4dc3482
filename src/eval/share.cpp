// SPDX-License-Identifier: Apache-2.0
#include "eval/share.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "eval/journal.hpp"
#include "io/atomic_file.hpp"
#include "io/file.hpp"
#include "io/hash.hpp"

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <filesystem>
#include <map>
#include <system_error>
#include <utility>

#include <fcntl.h>
#include <sys/file.h>

namespace bathys::eval {
namespace {

namespace fs = std::filesystem;

// What a journal file is, by content.
using Content = std::pair<std::uint64_t, std::string>;
Content content_of(const std::string& text) { return {text.size(), io::sha256_hex(text)}; }

// The files of a folder's journal, by name.
std::vector<std::string> journal_files(const std::string& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder + "/journal", error)) {
    if (read_journal_name(entry.path().filename().string()).start > 0) files.push_back(entry.path().string());
  }
  require(!error || error == std::errc::no_such_file_or_directory, ExitCode::bad_input, "{}/journal cannot be read: {}",
          folder, error.message());
  std::sort(files.begin(), files.end());
  return files;
}

// Holds a source's lock while it is read, so that no run is writing there.
io::Descriptor lock_source(const std::string& source) {
  const std::string name = source + "/run.lock";
  io::Descriptor lock(::open(name.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock.open()) return lock;  // copied without it: nobody runs there
  require(::flock(lock.get(), LOCK_SH | LOCK_NB) == 0, ExitCode::usage,
          "--take-from {}: a run is at work there; wait for its end", source);
  return lock;
}

void require_same_run(const std::string& source, const RunIdentity& identity) {
  const std::string name = source + "/manifest.json";
  require(fs::exists(name), ExitCode::bad_input, "--take-from {}: no manifest.json, so it is no run folder", source);
  const Json manifest = parse_json(io::read_small_file(name), name, ExitCode::bad_input);
  require(manifest.is_object() && manifest.contains("identity") && manifest["identity"].is_object(),
          ExitCode::bad_input, "{}: no identity stands in it; it is not of a run", name);
  const Json& known = manifest["identity"];
  for (const auto& [key, value] : identity) {
    if (key == kShareKey) continue;
    const std::string theirs =
        known.contains(key) && known[key].is_string() ? known[key].get<std::string>() : "nothing";
    require(theirs == value, ExitCode::usage,
            "--take-from {}: a run with {} = {}, here it is {}: its answers would not belong to this run", source, key,
            theirs, value);
  }
}

}  // namespace

Share read_share(const std::string& text) {
  Share share;
  const char* const end = text.data() + text.size();
  const auto index = std::from_chars(text.data(), end, share.index);
  const bool slash = index.ec == std::errc() && index.ptr != end && *index.ptr == '/';
  const auto count = slash ? std::from_chars(index.ptr + 1, end, share.count)
                           : std::from_chars_result{end, std::errc::invalid_argument};
  require(
      count.ec == std::errc() && count.ptr == end && share.count >= 1 && share.index >= 0 && share.index < share.count,
      ExitCode::usage, "--share is {}, expected K/N with K from 0 to N-1, as 0/8", text);
  return share;
}

std::string to_string(const Share& share) {
  return share.count == 1 ? "all" : fmt::format("{}/{}", share.index, share.count);
}

std::vector<Request> keep_share(std::vector<Request> requests, const Share& share) {
  if (share.count == 1) return requests;
  std::vector<Request> kept;
  std::int64_t line = -1;  // among the request lines
  for (Request& request : requests) {
    if (request.first_repeat == 0) ++line;
    if (line % share.count == share.index) kept.push_back(std::move(request));
  }
  return kept;
}

std::string journal_run(const RunIdentity& identity) {
  std::string text;
  for (const auto& [key, value] : identity) {
    if (key != kShareKey) text += fmt::format("{}={}\n", key, value);
  }
  return io::sha256_hex(text);
}

void take_journals(const RunFolder& folder, const RunIdentity& identity, const std::vector<std::string>& sources,
                   const Pulse& pulse) {
  if (sources.empty()) return;
  int last_start = 0;
  std::map<Content, JournalName> here;
  for (const std::string& file : journal_files(folder.path())) {
    const JournalName name = read_journal_name(fs::path(file).filename().string());
    last_start = std::max(last_start, name.start);
    here.emplace(content_of(io::read_stream(file, pulse)), name);
  }
  io::make_folder(folder.file("journal"));
  for (const std::string& source : sources) {
    std::error_code none;
    require(!fs::equivalent(source, folder.path(), none), ExitCode::usage,
            "--take-from {}: this is the run folder itself", source);
    require_same_run(source, identity);
    const io::Descriptor lock = lock_source(source);
    // The groups of one start stay one start, also where a part of them was taken before.
    std::map<int, int> start_here;
    std::vector<std::string> others;
    const auto known = [&](const JournalName& name, const Content& content) {
      const auto found = here.find(content);
      if (found == here.end()) return false;
      if (found->second.rank == name.rank) start_here.emplace(name.start, found->second.start);
      return true;
    };
    for (const std::string& file : journal_files(source)) {
      const JournalName name = read_journal_name(fs::path(file).filename().string());
      if (!known(name, content_of(io::read_stream(file, pulse)))) others.push_back(file);
    }
    for (const std::string& file : others) {
      const JournalName name = read_journal_name(fs::path(file).filename().string());
      const std::string text = io::read_stream(file, pulse);
      const Content content = content_of(text);
      if (known(name, content)) continue;  // the same as another of this source
      auto start = start_here.find(name.start);
      if (start == start_here.end() || fs::exists(folder.file("journal/" + journal_name({start->second, name.rank}))))
        start = start_here.insert_or_assign(name.start, ++last_start).first;
      const JournalName copy{start->second, name.rank};
      io::write_file(folder.file("journal/" + journal_name(copy)), text);
      here.emplace(content, copy);
    }
  }
}

}  // namespace bathys::eval
