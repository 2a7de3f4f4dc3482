// SPDX-License-Identifier: Apache-2.0
#include "eval/journal.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "eval/json_text.hpp"
#include "eval/record_shape.hpp"
#include "io/atomic_file.hpp"
#include "io/line_file.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <filesystem>
#include <span>
#include <utility>

#include <fcntl.h>
#include <unistd.h>

namespace bathys::eval {
namespace {

constexpr std::string_view kExtension = ".jsonl";
constexpr int kMostStarts = 999'999'999;  // a larger number is none that a start gave, and leaves no room for the next
constexpr std::string_view kRecordHead = R"({"record":)";
constexpr std::string_view kItemHead = R"(,"item":)";
constexpr const char* kInsteadOf = "instead_of";
constexpr std::string_view kSeal = R"(,"sha256":")";  // of all that stands before it
constexpr std::size_t kDigits = 64;
constexpr const char* kCacheBytes = "cache_bytes";
// Journals that are held open: many starts of many ranks leave more of them than a process may open files.
constexpr std::size_t kMostOpen = 128;

struct ProgressField {
  const char* name;
  double PhaseSeconds::*seconds;
};
constexpr ProgressField kSeconds[] = {{"load_s", &PhaseSeconds::load_s},       {"prepare_s", &PhaseSeconds::prepare_s},
                                      {"prefill_s", &PhaseSeconds::prefill_s}, {"decode_s", &PhaseSeconds::decode_s},
                                      {"write_s", &PhaseSeconds::write_s},     {"total_s", &PhaseSeconds::total_s}};

std::string journal_path(const std::string& folder, int start, int rank) {
  return fmt::format("{}/journal/{}", folder, journal_name({start, rank}));
}

StartHeader read_header(const Json& json) {
  StartHeader header;
  header.number = json.value("number", 0);
  header.time = json.value("time", "");
  header.ranks = json.value("ranks", 0);
  header.layout = json.value("layout", "");
  header.memory_gib = json.value("memory_gib", 0.0);
  return header;
}

Progress read_progress(const Json& json) {
  Progress progress;
  for (const auto& field : kSeconds) progress.*field.seconds = json.value(field.name, 0.0);
  progress.prefill_rows = json.value("prefill_rows", std::int64_t{0});
  progress.decode_rows = json.value("decode_rows", std::int64_t{0});
  if (json.contains("layers")) progress.layers = LayerRows::from_journal(json["layers"]);
  return progress;
}

// As Hash128::hex() writes it.
std::optional<io::Hash128> read_hash(const std::string& text) {
  io::Hash128 hash;
  const char* const middle = text.data() + 16;
  const auto part = [](const char* begin, const char* end, std::uint64_t& value) {
    const auto read = std::from_chars(begin, end, value, 16);
    return read.ec == std::errc() && read.ptr == end;
  };
  const bool whole = text.size() == 32 && part(text.data(), middle, hash.high) && part(middle, middle + 16, hash.low);
  return whole ? std::optional(hash) : std::nullopt;
}

std::string seal(std::string_view body, std::string_view run) {
  return fmt::format("{}{}{}\"}}", body, kSeal, io::sha256_hex(fmt::format("{}{}", run, body)));
}

// Whether a line is as this run wrote it: a byte that changed on the disk may leave JSON, but no seal.
bool is_sealed(std::string_view line, std::string_view run) {
  const std::size_t end = kSeal.size() + kDigits + 2;
  return line.size() > end && line == seal(line.substr(0, line.size() - end), run);
}

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

}  // namespace

JournalName read_journal_name(const std::string& file) {
  JournalName name;
  const char* const end = file.data() + file.size();
  const auto first = std::from_chars(file.data(), end, name.start);
  if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return {};
  const auto second = std::from_chars(first.ptr + 1, end, name.rank);
  const bool whole = second.ec == std::errc() && name.start <= kMostStarts &&
                     std::string_view(second.ptr, static_cast<std::size_t>(end - second.ptr)) == kExtension;
  return whole ? name : JournalName();
}

std::string journal_name(const JournalName& name) {
  return fmt::format("{:06d}-{:06d}{}", name.start, name.rank, kExtension);
}

void Progress::join(const Progress& other) {
  for (const auto& field : kSeconds) this->*field.seconds = std::max(this->*field.seconds, other.*field.seconds);
  prefill_rows += other.prefill_rows;
  decode_rows += other.decode_rows;
  layers.add(other.layers);
}

void Progress::add(const Progress& other) {
  for (const auto& field : kSeconds) this->*field.seconds += other.*field.seconds;
  prefill_rows += other.prefill_rows;
  decode_rows += other.decode_rows;
  layers.add(other.layers);
}

RecordTable::RecordTable(const std::vector<Request>& requests, std::string run)
    : requests_(&requests), run_(std::move(run)) {
  std::size_t n = 0;
  for (std::size_t i = 0; i < requests.size(); ++i) {
    index_.emplace(requests[i].custom_id, i);
    first_.push_back(n);
    n += static_cast<std::size_t>(requests[i].n_repeats());
  }
  places_.resize(n);
}

void RecordTable::read(const std::string& folder, const Pulse& pulse) {
  std::vector<std::pair<int, std::string>> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder + "/journal", error)) {
    const std::string name = entry.path().filename().string();
    if (const int start = read_journal_name(name).start; start > 0) names.emplace_back(start, entry.path().string());
  }
  require(!error || error == std::errc::no_such_file_or_directory, ExitCode::bad_input, "{}/journal cannot be read: {}",
          folder, error.message());
  std::sort(names.begin(), names.end());
  for (const auto& [start, path] : names) read_file(path, start, 0, pulse);
  require_no_dispute();
}

void RecordTable::read_writer(const std::string& folder, int start, int rank, std::int64_t bytes, const Pulse& pulse) {
  read_file(journal_path(folder, start, rank), start, bytes, pulse);
  require_no_dispute();
}

void RecordTable::read_file(const std::string& path, int start, std::int64_t least_bytes, const Pulse& pulse) {
  last_start_ = std::max(last_start_, start);
  const int file = static_cast<int>(files_.size());
  files_.emplace_back();
  files_.back().path = path;
  files_.back().start = start;
  io::LineFile lines(path);
  require(
      lines.bytes() >= least_bytes, ExitCode::stopped,
      "{} has {} bytes on rank 0, its writer wrote {}: the file system does not show them yet; run the same command "
      "again",
      path, lines.bytes(), least_bytes);
  Progress progress;
  while (const auto line = lines.next(pulse)) {
    // A line counts when it ends in a newline and its seal holds: anything else is what a kill, a power loss or a bad
    // disk left.
    if (!line->ended || !read_line(line->bytes, line->offset, file, progress)) ++damaged_lines_;
  }
  progress_[start].join(progress);
}

Progress RecordTable::progress() const {
  Progress all;
  for (const auto& [start, progress] : progress_) all.add(progress);
  return all;
}

bool RecordTable::read_line(std::string_view line, std::int64_t offset, int file, Progress& progress) {
  Json json;
  if (!is_sealed(line, run_) || try_parse_json(line, json) || !json.is_object()) return false;
  try {
    if (json.contains("start")) {
      files_[static_cast<std::size_t>(file)].header = read_header(json["start"]);
      return true;
    }
    if (json.contains("progress")) {
      progress = read_progress(json["progress"]);
      return true;
    }
    const Json& record = json.at("record");
    const auto found = index_.find(record.at("custom_id").get_ref<const std::string&>());
    if (found == index_.end()) return false;
    std::size_t index = found->second;  // of the line's first request
    auto repeat = record.at("repeat").get<std::int32_t>();
    for (; index + 1 < requests_->size() && (*requests_)[index + 1].first_repeat > 0; ++index) {
      if (repeat < (*requests_)[index + 1].first_repeat) break;
    }
    const Request& request = (*requests_)[index];
    repeat -= request.first_repeat;
    if (repeat < 0 || repeat >= request.n_repeats() || record.at("request_sha256") != request.sha256 ||
        !is_whole_record(request, record, json.at("item")))
      return false;
    const std::string_view record_text = raw_member(line, "record").value();
    const std::string_view item_text = raw_member(line, "item").value();
    RecordPlace place;
    place.file = file;
    place.offset = offset + (record_text.data() - line.data());
    place.bytes = std::ssize(record_text);
    place.item_offset = offset + (item_text.data() - line.data());
    place.item_bytes = std::ssize(item_text);
    place.hash = io::xxh3_128(record_text);
    place.ok = record["ok"].get<bool>();
    place.does_not_fit = !place.ok && record["error"]["code"] == "does_not_fit";
    if (place.does_not_fit) place.cache_bytes = json.value(kCacheBytes, std::int64_t{0});
    std::optional<io::Hash128> instead_of;
    if (json.contains(kInsteadOf)) {
      instead_of = read_hash(json[kInsteadOf].get_ref<const std::string&>());
      if (!instead_of) return false;
    }
    put(index_of(index, repeat), place, instead_of);
    return true;
  } catch (const std::exception& error) {
    if (dynamic_cast<const Error*>(&error) != nullptr) throw;
    return false;  // valid JSON, but no line of ours
  }
}

void RecordTable::put(std::size_t index, const RecordPlace& place, const std::optional<io::Hash128>& instead_of) {
  RecordPlace& known = places_[index];
  if (instead_of) {
    std::vector<io::Hash128>& replaced = histories_[index].replaced;
    std::erase(replaced, place.hash);  // said again: it stands
    if (*instead_of != place.hash) replaced.push_back(*instead_of);
  }
  if (const auto before = forgotten_.find(index); before != forgotten_.end()) {
    known = before->second;
    forgotten_.erase(before);
    ++n_present_;
    ++n_failed_;
  }
  if (known.present()) {
    const bool equal = known.hash == place.hash && known.bytes == place.bytes;
    if (!equal && !known.does_not_fit && !place.does_not_fit) {
      std::vector<RecordPlace>& different = histories_[index].different;
      for (const RecordPlace& one : {known, place}) {
        const auto same = [&](const RecordPlace& other) { return other.hash == one.hash; };
        if (std::none_of(different.begin(), different.end(), same)) different.push_back(one);
      }
    }
    // The first of equal ones; a good one over a failed one; what was computed over what found no room.
    if (equal || known.ok || (place.does_not_fit && !known.does_not_fit)) return;
    --n_failed_;
    --n_present_;
  }
  known = place;
  ++n_present_;
  n_failed_ += place.ok ? 0 : 1;
}

// The same request with the same numbers has one answer.  Only what failed and was asked for again may have another.
void RecordTable::require_no_dispute() const {
  for (const auto& [index, history] : histories_) {
    const RecordPlace* first = nullptr;
    for (const RecordPlace& one : history.different) {
      const auto& replaced = history.replaced;
      if (!one.ok && std::find(replaced.begin(), replaced.end(), one.hash) != replaced.end()) continue;
      if (first == nullptr) {
        first = &one;
        continue;
      }
      const auto said = [](const RecordPlace& place) { return place.ok ? "" : " (failed)"; };
      const auto request =
          static_cast<std::size_t>(std::upper_bound(first_.begin(), first_.end(), index) - first_.begin()) - 1;
      fail(ExitCode::bad_input,
           "{}{} and {}{} hold different answers to {} (repeat {}); one of them is not of this run, remove it and run "
           "again",
           files_[static_cast<std::size_t>(first->file)].path, said(*first),
           files_[static_cast<std::size_t>(one.file)].path, said(one), json_string((*requests_)[request].custom_id),
           static_cast<std::int64_t>(index - first_[request]) + (*requests_)[request].first_repeat);
    }
  }
}

void RecordTable::forget(std::size_t index) {
  forgotten_.emplace(index, std::exchange(places_[index], RecordPlace()));
  --n_present_;
  --n_failed_;
}

void RecordTable::forget_failed() {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    if (places_[index].present() && !places_[index].ok) forget(index);
  }
}

void RecordTable::forget_misfits(std::int64_t cache_bytes) {
  for (std::size_t index = 0; index < places_.size(); ++index) {
    const RecordPlace& place = places_[index];
    if (place.present() && place.does_not_fit && (cache_bytes == 0 || place.cache_bytes <= cache_bytes)) forget(index);
  }
}

std::int64_t RecordTable::n_misfits() const {
  return std::count_if(places_.begin(), places_.end(),
                       [](const RecordPlace& place) { return place.present() && place.does_not_fit; });
}

std::size_t RecordTable::index_of(std::size_t request, std::int32_t repeat) const {
  return first_[request] + static_cast<std::size_t>(repeat);
}

std::optional<io::Hash128> RecordTable::forgotten(std::size_t request, std::int32_t repeat) const {
  const auto found = forgotten_.find(index_of(request, repeat));
  return found == forgotten_.end() ? std::nullopt : std::optional(found->second.hash);
}

const RecordPlace& RecordTable::at(std::size_t request, std::int32_t repeat) const {
  return places_[index_of(request, repeat)];
}

std::string RecordTable::read_text(int file, std::int64_t offset, std::int64_t bytes) const {
  const File& source = files_[static_cast<std::size_t>(file)];
  if (!source.reader) {
    if (open_.size() >= kMostOpen) {
      files_[static_cast<std::size_t>(open_.front())].reader.reset();
      open_.pop_front();
    }
    source.reader = std::make_unique<io::ReadFile>(source.path);
    open_.push_back(file);
  }
  std::string text(static_cast<std::size_t>(bytes), '\0');
  source.reader->read_at(static_cast<std::uint64_t>(offset), std::as_writable_bytes(std::span(text)));
  return text;
}

std::string RecordTable::record(const RecordPlace& place) const {
  return read_text(place.file, place.offset, place.bytes);
}
std::string RecordTable::item(const RecordPlace& place) const {
  return read_text(place.file, place.item_offset, place.item_bytes);
}
int RecordTable::start_of(const RecordPlace& place) const { return files_[static_cast<std::size_t>(place.file)].start; }

JournalWriter::JournalWriter(const std::string& folder, const StartHeader& header, int rank, std::string run,
                             double sync_seconds)
    : path_(journal_path(folder, header.number, rank)), run_(std::move(run)), sync_seconds_(sync_seconds) {
  io::make_folder(folder + "/journal");
  fd_ = io::Descriptor(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644));
  if (!fd_.open()) io::fail_write(errno, path_, "created");
  write(fmt::format(R"({{"start":{{"number":{},"time":{},"ranks":{},"layout":{},"memory_gib":{}}})", header.number,
                    json_string(header.time), header.ranks, json_string(header.layout),
                    json_number(header.memory_gib)));
  // A durable line in a file whose name a power loss takes away would be lost all the same.
  sync();
  io::sync_folder(folder + "/journal");
  io::sync_folder(folder);
}

void JournalWriter::write(std::string_view body) {
  const std::string whole = seal(body, run_) + '\n';
  io::write_all(fd_.get(), bytes_of(whole), path_);
  bytes_ += std::ssize(whole);
  ++unsynced_;
  sync_if_due();
}

void JournalWriter::append(const Record& record, std::string_view item, const std::optional<io::Hash128>& instead_of) {
  std::string rest;
  if (instead_of) rest += fmt::format(R"(,"{}":"{}")", kInsteadOf, instead_of->hex());
  if (record.cache_bytes > 0) rest += fmt::format(R"(,"{}":{})", kCacheBytes, record.cache_bytes);
  write(fmt::format("{}{}{}{}{}", kRecordHead, record.text, kItemHead, item, rest));
}

void JournalWriter::append_progress(const Progress& progress) {
  std::string text = R"({"progress":{)";
  for (const auto& field : kSeconds) text += fmt::format("\"{}\":{:.6f},", field.name, progress.*field.seconds);
  write(text + fmt::format("\"prefill_rows\":{},\"decode_rows\":{},\"layers\":{}}}", progress.prefill_rows,
                           progress.decode_rows, progress.layers.to_journal().dump()));
}

void JournalWriter::sync() {
  if (::fsync(fd_.get()) != 0 && errno != EINVAL) io::fail_write(errno, path_, "written");
  unsynced_ = 0;
  since_sync_.restart();
}

void JournalWriter::sync_if_due() {
  if (unsynced_ >= kSyncLines || (unsynced_ > 0 && since_sync_.seconds() >= sync_seconds_)) sync();
}

}  // namespace bathys::eval
