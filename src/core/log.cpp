// SPDX-License-Identifier: Apache-2.0
#include "core/log.hpp"

#include "core/shown.hpp"

#include <memory>
#include <string>

#include <spdlog/sinks/stdout_sinks.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

namespace bathys::log {
namespace {

Level current_level = Level::info;

spdlog::logger& logger() {
  static const std::shared_ptr<spdlog::logger> instance = [] {
    auto made = std::make_shared<spdlog::logger>("bathys", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%v");
    made->set_level(spdlog::level::trace);
    made->flush_on(spdlog::level::trace);
    return made;
  }();
  return *instance;
}

}  // namespace

void configure(Level level, int rank) { current_level = rank == 0 ? level : Level::quiet; }

void write(Level level, std::string_view line) {
  if (level <= current_level && current_level != Level::quiet) {
    logger().info("{}", printable(line));
  }
}

void cause(std::string_view text) noexcept {
  try {
    const std::string line = "bathys: error: " + printable(text) + '\n';
    // One write keeps the lines of several ranks whole; a short write to stderr has nobody left to be told.
    [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, line.data(), line.size());
  } catch (...) {  // out of memory while dying: the exit code still speaks
  }
}

}  // namespace bathys::log
