// SPDX-License-Identifier: Apache-2.0
// A small program that ends in one of several ways; endings_test.cpp starts it alone and under mpirun.
//   probe MODE [--threads N] [--single-process] [--watchdog S]
#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "parallel/agree.hpp"
#include "parallel/collectives.hpp"
#include "parallel/session.hpp"
#include "parallel/signals.hpp"
#include "parallel/watchdog.hpp"

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

namespace bathys::parallel {
namespace {

constexpr auto kForever = std::chrono::hours(1);
constexpr int kUntilMissed = 80;  // steps in which a process that stands still is found

// What ranks other than the one that fails do: they wait for it in a collective.
void join_the_others(Session& session) {
  std::vector<std::int64_t> values(1000, 1);
  session.world().all_reduce_sum(Exec(), values.data(), std::ssize(values));
}

bool is_last(Session& session) { return session.rank() == session.size() - 1; }

ExitCode finish(Session& session) {
  join_the_others(session);
  return ExitCode::ok;
}

ExitCode fail_at_a_gate(Session& session) {
  agree(session.world(), [&] { require(!is_last(session), ExitCode::bad_input, "shard_03.h5 is truncated"); });
  return ExitCode::ok;
}

ExitCode throw_alone(Session& session) {
  require(!is_last(session), ExitCode::bad_input, "a cause in the middle of work");
  return finish(session);
}

ExitCode throw_everywhere(Session&) { throw std::runtime_error("the same on all ranks"); }

ExitCode hang_alone(Session& session) {
  session.watchdog().progress("step 7", Pace::compute);
  if (is_last(session)) {
    session.watchdog().phase("a loop without end");
    std::this_thread::sleep_for(kForever);
  }
  return finish(session);
}

void take_steps(Session& session, int n) {
  for (int step = 0; step < n; ++step) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    session.watchdog().progress("step " + std::to_string(step), Pace::compute);
  }
}

ExitCode work_slowly(Session& session) {
  take_steps(session, 20);
  return finish(session);
}

// As a node that swaps, or a debugger that holds the process: in the middle of a collective of its own.
ExitCode freeze(Session& session) {
  session.watchdog().progress("step 9");
  join_the_others(session);
  if (is_last(session)) std::raise(SIGSTOP);
  return finish(session);
}

// As a replica of its own, for which the others do not wait yet.
ExitCode freeze_apart(Session& session) {
  session.watchdog().progress("step 9");
  join_the_others(session);
  if (is_last(session)) std::raise(SIGSTOP);
  take_steps(session, kUntilMissed);
  return ExitCode::ok;
}

// As the last thing that it does for the others.
ExitCode freeze_when_done(Session& session) {
  join_the_others(session);
  if (is_last(session)) std::raise(SIGSTOP);
  return ExitCode::ok;
}

// When all are done and take leave of each other.
ExitCode freeze_at_the_end(Session& session) {
  if (is_last(session)) Kokkos::push_finalize_hook([] { std::raise(SIGSTOP); });
  return finish(session);
}

// Ranks that end at different times.
ExitCode leave_apart(Session& session) {
  join_the_others(session);
  if (!is_last(session)) take_steps(session, kUntilMissed);
  return ExitCode::ok;
}

ExitCode be_killed(Session& session) {
  join_the_others(session);
  if (is_last(session)) std::raise(SIGKILL);
  return finish(session);
}

ExitCode be_stopped(Session& session) {
  install_signal_handlers();
  if (is_last(session)) std::raise(SIGUSR1);
  while (session.world().all_reduce_host(stop_requested() ? 1 : 0, Reduce::max) == 0)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return ExitCode::stopped;
}

}  // namespace

int probe(int argc, char** argv) {
  const std::map<std::string, std::function<ExitCode(Session&)>> modes = {{"finish", finish},
                                                                          {"gate", fail_at_a_gate},
                                                                          {"throw", throw_alone},
                                                                          {"throw_all", throw_everywhere},
                                                                          {"hang", hang_alone},
                                                                          {"freeze", freeze},
                                                                          {"slow", work_slowly},
                                                                          {"kill", be_killed},
                                                                          {"stop", be_stopped},
                                                                          {"freeze_apart", freeze_apart},
                                                                          {"leave_apart", leave_apart},
                                                                          {"freeze_at_start", finish},
                                                                          {"freeze_when_done", freeze_when_done},
                                                                          {"freeze_at_the_end", freeze_at_the_end}};
  SessionOptions options;
  for (int i = 2; i < argc; ++i) {
    if (std::strcmp(argv[i], "--single-process") == 0) options.single_process = true;
    if (std::strcmp(argv[i], "--threads") == 0) options.threads = std::atoi(argv[++i]);
    if (std::strcmp(argv[i], "--watchdog") == 0) options.watchdog_s = std::atof(argv[++i]);
  }
  // Before the ranks know each other; the first one is waited for.
  const char* const rank = std::getenv("PMIX_RANK");
  if (std::strcmp(argv[1], "freeze_at_start") == 0 && rank != nullptr && std::strcmp(rank, "0") == 0)
    std::raise(SIGSTOP);
  return run_session(options, modes.at(argv[1]));
}

}  // namespace bathys::parallel

int main(int argc, char** argv) { return bathys::parallel::probe(argc, argv); }
