// SPDX-License-Identifier: Apache-2.0
#include "eval/result_files.hpp"

#include "core/json.hpp"
#include "eval/json_text.hpp"
#include "eval/openai_output.hpp"
#include "io/atomic_file.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

constexpr const char* kResults = "results.jsonl";
// Of a finished run; the last two where there are OpenAI lines.
constexpr const char* kFinal[] = {kResults,       "failed.jsonl",        "items.jsonl",
                                  "scores.jsonl", "openai_output.jsonl", "openai_errors.jsonl"};
constexpr const char* kPartial = "results.partial.jsonl";
constexpr std::size_t kBufferBytes = std::size_t{1} << 20;

// An atomic file written in large pieces.
class BufferedFile {
 public:
  explicit BufferedFile(const std::string& path) : file_(path) {}
  void write(const std::string& line) {
    buffer_ += line;
    if (buffer_.size() >= kBufferBytes) flush();
  }
  void commit() {
    flush();
    file_.commit();
  }

 private:
  void flush() {
    file_.write(buffer_);
    buffer_.clear();
  }
  io::AtomicFile file_;
  std::string buffer_;
};

// A record with its meta, as it stands in the request file.
std::string result_line(std::string record, const Request& request) {
  record.pop_back();
  return record.append(",\"meta\":").append(request.meta).append("}\n");
}

template <class Visit>
void for_each_record(const std::vector<Request>& requests, const RecordTable& records, const Pulse& pulse,
                     Visit&& visit) {
  for (std::size_t i = 0; i < requests.size(); ++i) {
    beat(pulse);
    for (std::int32_t repeat = 0; repeat < requests[i].n_repeats(); ++repeat) {
      if (const RecordPlace& place = records.at(i, repeat); place.present())
        visit(requests[i], requests[i].first_repeat + repeat, place);
    }
  }
}

// The OpenAI files: a line is written when all its answers are there, which come one after the other.
class OpenAiFiles {
 public:
  OpenAiFiles(const RunFolder& folder, const OpenAiContext& context)
      : output_(folder.file("openai_output.jsonl")), errors_(folder.file("openai_errors.jsonl")), context_(context) {}
  void add(const Request& request, std::int32_t index, Json record) {
    if (request_ != nullptr && request_->line != request.line) flush();
    if (request_ == nullptr) request_ = &request;
    answers_.push_back({index, std::move(record)});
  }
  void commit() {
    flush();
    output_.commit();
    errors_.commit();
  }

 private:
  void flush() {
    if (request_ == nullptr) return;
    const OpenAiLine line = openai_line(*request_, answers_, context_);
    (line.ok ? output_ : errors_).write(line.text);
    request_ = nullptr;
    answers_.clear();
  }
  BufferedFile output_, errors_;
  OpenAiContext context_;
  const Request* request_ = nullptr;
  std::vector<OpenAiAnswer> answers_;
};

std::string scores_line(const Request& request, std::int32_t repeat, const ItemScores& scores) {
  std::string members;
  for (const auto& [name, value] : scores)
    members += fmt::format("{}\"{}\":{}", members.empty() ? "" : ",", name, json_number(value));
  return fmt::format("{{\"custom_id\":{},\"repeat\":{},\"task\":{},\"scores\":{{{}}}}}\n",
                     json_string(request.custom_id), repeat, json_string(request.task), members);
}

void announce_all(const std::vector<Request>& requests, RunScores& scores) {
  for (const Request& request : requests) scores.announce(request);
}

}  // namespace

Json result_sizes(const RunFolder& folder) {
  Json sizes = Json::object();
  for (const char* name : kFinal) {
    std::error_code absent;
    const std::uintmax_t bytes = std::filesystem::file_size(folder.file(name), absent);
    if (!absent) sizes[name] = bytes;
  }
  return sizes;
}

bool results_are_whole(const RunFolder& folder) {
  const std::string name = folder.file("summary.json");
  if (!std::filesystem::exists(name)) return false;
  Json summary;
  if (try_parse_json(io::read_small_file(name), summary) || !summary.is_object()) return false;
  return summary.contains("files") && summary["files"] == result_sizes(folder);
}

void read_results(const std::vector<Request>& requests, const RecordTable& records, RunScores& scores,
                  const Pulse& pulse) {
  announce_all(requests, scores);
  for_each_record(requests, records, pulse, [&](const Request& request, std::int32_t, const RecordPlace& place) {
    scores.add(request, parse_json(records.record(place), "a journal record", ExitCode::bad_input));
    scores.add_item(parse_json(records.item(place), "a journal item", ExitCode::bad_input));
  });
}

void write_results(const RunFolder& folder, const std::vector<Request>& requests, const RecordTable& records,
                   RunScores& scores, const Pulse& pulse) {
  announce_all(requests, scores);
  const bool whole = records.n_present() == records.n_wanted();
  BufferedFile results(folder.file(whole ? kResults : kPartial));
  std::optional<BufferedFile> failed, items, item_scores;
  std::optional<OpenAiFiles> openai;
  if (whole) {
    failed.emplace(folder.file("failed.jsonl"));
    items.emplace(folder.file("items.jsonl"));
    item_scores.emplace(folder.file("scores.jsonl"));
    const bool any = std::any_of(requests.begin(), requests.end(),
                                 [](const Request& request) { return request.dialect != Dialect::own; });
    if (any) openai.emplace(folder, OpenAiContext{scores.tokenizer(), unix_seconds(folder.first_start())});
  }
  for_each_record(requests, records, pulse, [&](const Request& request, std::int32_t repeat, const RecordPlace& place) {
    std::string record = records.record(place);
    Json json = parse_json(record, "a journal record", ExitCode::bad_input);
    const ItemScores values = scores.add(request, json);
    const std::string item = records.item(place);
    scores.add_item(parse_json(item, "a journal item", ExitCode::bad_input));
    if (item_scores) item_scores->write(scores_line(request, repeat, values));
    if (openai && request.dialect != Dialect::own) openai->add(request, repeat, std::move(json));
    const std::string line = result_line(std::move(record), request);
    results.write(line);
    if (failed && !place.ok) failed->write(line);
    if (items) {
      items->write(fmt::format("{{\"custom_id\":{},\"repeat\":{},\"start\":{},{}\n", json_string(request.custom_id),
                               repeat, records.start_of(place), item.substr(1)));
    }
  });
  results.commit();
  if (failed) failed->commit();
  if (items) items->commit();
  if (item_scores) item_scores->commit();
  if (openai) openai->commit();
  // What an earlier start left would contradict this.
  std::error_code ignored;
  if (whole) {
    std::filesystem::remove(folder.file(kPartial), ignored);
  } else {
    std::filesystem::remove(folder.file("summary.json"), ignored);
    for (const char* name : kFinal) std::filesystem::remove(folder.file(name), ignored);
  }
}

void write_status(const RunFolder& folder, const RunStatus& status) {
  Json json;
  json["schema"] = "bathys.status.1";
  json["state"] = status.state;
  json["time"] = utc_now();
  json["total"] = status.total;
  json["done"] = status.done;
  json["failed"] = status.failed;
  json["seconds"] = status.seconds;
  json["answers_per_s"] = status.answers_per_s;
  json["seconds_left"] = status.seconds_left ? Json(*status.seconds_left) : Json(nullptr);
  io::write_file(folder.file("status.json"), json.dump(2) + "\n");
}

}  // namespace bathys::eval
