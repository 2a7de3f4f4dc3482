// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog.hpp"

#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <chrono>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

namespace bathys::parallel {
namespace {

constexpr int kMaxRanksShown = 16;
constexpr double kNodeStagger_s = 1.0;  // node 0 speaks first; the next one only if that did not end the job
constexpr int kMaxStaggered = 10;

}  // namespace

Watchdog::Watchdog(NodeBoard& board, double limit_s, bool may_call_mpi)
    : board_(board), limit_s_(limit_s), may_call_mpi_(may_call_mpi) {
  progress("start");
  if (limit_s_ > 0) thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Watchdog::progress(std::string_view phase) {
  board_.mine().phase.set(phase);
  board_.mine().progress_ns.store(NodeBoard::now_ns(), std::memory_order_relaxed);
}

void Watchdog::phase(std::string_view phase) { board_.mine().phase.set(phase); }

void Watchdog::watch() {
  const double patience_s = limit_s_ + kNodeStagger_s * std::min(board_.node(), kMaxStaggered);
  const auto tick = std::chrono::duration<double>(std::clamp(limit_s_ / 20, 0.01, 1.0));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, tick, [this] { return done_; })) {
    const double idle_s =
        1e-9 * static_cast<double>(NodeBoard::now_ns() - board_.mine().progress_ns.load(std::memory_order_relaxed));
    if (idle_s > patience_s) end_job(idle_s);
  }
}

void Watchdog::end_job(double idle_s) {
  constexpr int code = static_cast<int>(ExitCode::internal);
  if (board_.claim_last_word()) {
    log::cause(describe_stuck(board_, idle_s, limit_s_));
  } else {
    std::this_thread::sleep_for(std::chrono::seconds(5));  // the rank that spoke ends this one too
  }
  // Whatever held the ranks up may hold up the abort.
  std::thread([] {
    std::this_thread::sleep_for(std::chrono::seconds(10));
    ::_exit(code);
  }).detach();
  if (may_call_mpi_) MPI_Abort(MPI_COMM_WORLD, code);
  ::_exit(code);
}

std::string describe_stuck(const NodeBoard& board, double idle_s, double limit_s) {
  std::string text =
      fmt::format("no progress for {:.1f} s (watchdog limit {:g} s) on host {}:", idle_s, limit_s, board.host());
  const int shown = std::min(board.local_size(), kMaxRanksShown);
  for (int r = 0; r < shown; ++r) {
    const NodeBoard::Slot& slot = board.slot(r);
    const std::string call = slot.call.get();
    const double since_s =
        1e-9 * static_cast<double>(NodeBoard::now_ns() - slot.progress_ns.load(std::memory_order_relaxed));
    text += fmt::format("{} rank {} in \"{}\" for {:.1f} s, {}", r == 0 ? "" : ";", slot.rank.load(), slot.phase.get(),
                        since_s, call.empty() ? "outside collectives" : "waiting in " + call);
  }
  if (shown < board.local_size()) text += fmt::format("; and {} more ranks", board.local_size() - shown);
  return text + "; a rank outside collectives is the one that hangs, else look for a lost link or host";
}

}  // namespace bathys::parallel
