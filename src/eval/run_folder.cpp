// SPDX-License-Identifier: Apache-2.0
#include "eval/run_folder.hpp"

#include "core/error.hpp"
#include "core/json.hpp"
#include "eval/json_text.hpp"
#include "io/atomic_file.hpp"

#include <array>
#include <cerrno>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <span>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace bathys::eval {
namespace {

constexpr std::string_view kSchema = "bathys.manifest.1";

std::string read_line(int fd) {
  std::array<char, 512> text{};
  const ssize_t n = ::pread(fd, text.data(), text.size() - 1, 0);
  std::string line(text.data(), static_cast<std::size_t>(std::max<ssize_t>(n, 0)));
  return line.empty() ? "an unknown process" : line.substr(0, line.find('\n'));
}

}  // namespace

std::string utc_now() {
  const std::time_t now = std::time(nullptr);
  std::tm utc{};
  ::gmtime_r(&now, &utc);
  std::array<char, 32> text{};
  std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text.data();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "unknown";
}

RunFolder::RunFolder(std::string path, const RunIdentity& identity) : path_(std::move(path)) {
  io::make_folder(path_);
  take_lock();
  compare_or_write(identity);
}

void RunFolder::take_lock() {
  const std::string name = file("run.lock");
  lock_ = io::Descriptor(::open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
  if (!lock_.open()) io::fail_write(errno, name, "created");
  require(std::filesystem::is_regular_file(name), ExitCode::usage,
          "{} is no regular file; remove it or choose another --out", name);
  if (::flock(lock_.get(), LOCK_EX | LOCK_NB) != 0) {
    require(errno == EWOULDBLOCK, ExitCode::usage, "{}: cannot be locked: {}", name, io::errno_text(errno));
    fail(ExitCode::usage, "{} is in use by {}; wait for it or choose another --out", path_, read_line(lock_.get()));
  }
  const char* const job = std::getenv("SLURM_JOB_ID");
  const std::string text = fmt::format("process {} on {}, job {}, since {}\n", ::getpid(), host_name(),
                                       job == nullptr ? "none" : job, utc_now());
  if (::ftruncate(lock_.get(), 0) != 0) io::fail_write(errno, name, "written");
  io::write_all_at(lock_.get(), 0, std::as_bytes(std::span(text)), name);
}

void RunFolder::compare_or_write(const RunIdentity& identity) {
  const std::string name = file("manifest.json");
  if (!std::filesystem::exists(name)) {
    require(!std::filesystem::exists(file("journal")), ExitCode::usage,
            "{} has a journal but no manifest.json, so nobody can say what its answers depend on; choose another --out",
            path_);
    first_start_ = utc_now();
    Json manifest;
    manifest["schema"] = kSchema;
    manifest["first_start"] = first_start_;
    for (const auto& [key, value] : identity) manifest["identity"][key] = value;
    io::write_file(name, manifest.dump(2) + "\n");
    return;
  }
  Json manifest;
  const auto damage = try_parse_json(io::read_small_file(name), manifest);
  require(!damage, ExitCode::bad_input,
          "{}: {}: the file is damaged, so nobody can say what the answers here depend on; choose another --out", name,
          damage.value_or(""));
  JsonObject root(manifest, name, ExitCode::bad_input);
  require(root.string("schema") == kSchema, ExitCode::usage,
          "{} was written by another version of the program; choose another --out", name);
  first_start_ = root.string("first_start");
  JsonObject known = root.object("identity");
  for (const auto& [key, value] : identity) {
    const std::string before = known.has(key) ? known.string(key) : "nothing";
    require(before == value, ExitCode::usage,
            "{} holds a run with {} = {}, now it is {}: its answers and new ones would not belong together; choose "
            "another --out",
            path_, key, before, value);
  }
}

}  // namespace bathys::eval
