// SPDX-License-Identifier: Apache-2.0
#include "eval/finished_run.hpp"

#include "core/error.hpp"
#include "io/file.hpp"

#include <filesystem>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace bathys::eval {
namespace {

std::string key_of(const std::string& custom_id, std::int32_t repeat) {
  return fmt::format("{} {}", repeat, custom_id);
}

void describe(const std::string& file, const char* member, std::map<std::string, std::string>& out) {
  if (!std::filesystem::exists(file)) return;
  const Json json = parse_json(io::read_small_file(file), file, ExitCode::bad_input);
  if (!json.is_object() || !json.contains(member) || !json[member].is_object()) return;
  for (const auto& [name, value] : json[member].items()) {
    if (name != "requests_sha256") out[name] = value.is_string() ? value.get<std::string>() : value.dump();
  }
}

// Two files of a run are read at once, and lines looked up in any order.
constexpr std::size_t kSlabBytes = std::size_t{1} << 16;

const std::string& require_finished(const std::string& folder) {
  const auto has = [&](const char* name) { return std::filesystem::exists(folder + "/" + name); };
  require(std::filesystem::is_directory(folder), ExitCode::bad_input,
          "{} is no folder; give the run folders of two evaluations (--out)", folder);
  require(has("results.jsonl") || !(has("results.partial.jsonl") || has("journal")), ExitCode::usage,
          "{} holds a run that is not finished; run its command again first", folder);
  require(has("results.jsonl"), ExitCode::bad_input, "{} holds no results.jsonl; give the run folder of an evaluation",
          folder);
  require(has("scores.jsonl"), ExitCode::bad_input,
          "{} holds no scores.jsonl; run the evaluation's command again, which writes what is missing", folder);
  return folder;
}

std::int64_t end_of(const io::FileLine& line) { return line.offset + std::ssize(line.bytes) + (line.ended ? 1 : 0); }

}  // namespace

FinishedRun::FinishedRun(const std::string& folder)
    : folder_(require_finished(folder)),
      results_(folder + "/results.jsonl", kSlabBytes),
      scores_(folder + "/scores.jsonl", kSlabBytes) {
  describe(folder + "/manifest.json", "identity", description_);
  describe(folder + "/summary.json", "options", description_);
}

void FinishedRun::go_to(const Place& place) {
  results_.go_to(place.result);
  scores_.go_to(place.scores);
  place_ = place;
}

std::optional<Answer> FinishedRun::next() {
  Answer answer;
  const std::string name = folder_ + "/results.jsonl";
  const auto result = results_.next();
  const auto scores = scores_.next();
  require(result.has_value() == scores.has_value(), ExitCode::bad_input,
          "{} and scores.jsonl beside it have not the same number of lines; run the evaluation's command again", name);
  if (!result) return std::nullopt;
  answer.line = result->bytes;
  place_ = {end_of(*result), end_of(*scores)};
  try {
    answer.record = parse_json(answer.line, name, ExitCode::bad_input);
    answer.custom_id = answer.record.at("custom_id").get<std::string>();
    answer.repeat = answer.record.at("repeat").get<std::int32_t>();
    answer.ok = answer.record.at("ok").get<bool>();
    static_cast<void>(answer.record.at("request_sha256").get_ref<const std::string&>());
    static_cast<void>(answer.record.at(answer.ok ? "result" : "error"));
    const Json other = parse_json(scores->bytes, folder_ + "/scores.jsonl", ExitCode::bad_input);
    answer.task = other.at("task").get<std::string>();
    answer.scores = other.at("scores");
    require(other.at("custom_id") == answer.custom_id && other.at("repeat") == answer.repeat, ExitCode::bad_input,
            "{} and scores.jsonl beside it are not of the same run: {} stands beside {}", name, answer.custom_id,
            other.at("custom_id").dump());
  } catch (const Json::exception& error) {
    fail(ExitCode::bad_input, "{} has a line that is no answer ({}); give the run folder of an evaluation", name,
         error.what());
  }
  return answer;
}

RunLookup::RunLookup(FinishedRun& run) : run_(&run) {
  FinishedRun::Place place = run.place();
  while (const auto answer = run.next()) {
    places_.emplace(key_of(answer->custom_id, answer->repeat), place);
    place = run.place();
  }
}

std::optional<Answer> RunLookup::find(const std::string& custom_id, std::int32_t repeat) const {
  const auto found = places_.find(key_of(custom_id, repeat));
  if (found == places_.end()) return std::nullopt;
  run_->go_to(found->second);
  return run_->next();
}

}  // namespace bathys::eval
