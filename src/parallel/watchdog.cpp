// SPDX-License-Identifier: Apache-2.0
#include "parallel/watchdog.hpp"

#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <algorithm>
#include <chrono>
#include <vector>

#include <fmt/format.h>
#include <mpi.h>
#include <unistd.h>

namespace bathys::parallel {
namespace {

constexpr int kMaxRanksShown = 16;
// Node 0 speaks first; the next one only if that did not end the job, for which a launcher takes up to two seconds.
constexpr double kNodeStaggerSeconds = 3.0;
constexpr int kMaxStaggered = 4;
// Ticks without a pulse after which a process counts as one that does not run.
constexpr double kMissedPulses = 10;

// A process is not called stopped before it has not run for so long, however short the limit is.
constexpr double kLeastSilenceSeconds = 5;

// Ticks that the time between two looks counts for at most; beyond that this process did not run.
constexpr double kLongestTick = 3;

double tick_s(double limit_s) { return std::clamp(limit_s / 20, 0.01, 1.0); }

double seconds_since(const std::atomic<std::int64_t>& time_ns) {
  return 1e-9 * static_cast<double>(NodeBoard::now_ns() - time_ns.load(std::memory_order_relaxed));
}

// What a rank does, as far as the others of its node can see.
std::string describe_rank(const NodeBoard::Slot& slot, double limit_s) {
  const bool pulses =
      slot.pulse_ns.load(std::memory_order_relaxed) != 0;  // else it begins, has ended or is not watched
  const double silent_s = pulses ? seconds_since(slot.pulse_ns) : 0;
  const std::string call = slot.call.get();
  std::string doing = call.empty() ? std::string("outside collectives")
                                   : fmt::format("waiting in {} (its {}. call)", call, slot.n_calls.load());
  if (silent_s > kMissedPulses * tick_s(limit_s)) {
    doing = fmt::format("NOT RUNNING for {:.1f} s (stopped, swapped out or dead), {}", silent_s, doing);
  }
  return fmt::format("rank {} in \"{}\" for {:.1f} s, {}", slot.rank.load(), slot.phase.get(),
                     seconds_since(slot.progress_ns), doing);
}

// Time in which something did not change, as this process saw it: what passes while this process does not run itself
// counts for no more than kLongestTick ticks.
class Stillness {
 public:
  // The value now, `elapsed_s` after the look before; returns for how long it has been the same.
  double look(std::int64_t value, double elapsed_s) {
    still_s_ = value == seen_ ? still_s_ + elapsed_s : 0;
    seen_ = value;
    return still_s_;
  }

 private:
  std::int64_t seen_ = 0;
  double still_s_ = 0;
};

}  // namespace

Watchdog::Watchdog(NodeBoard& board, double limit_s, bool may_call_mpi)
    : board_(board), limit_s_(limit_s), may_call_mpi_(may_call_mpi) {
  progress("start");
  if (limit_s_ <= 0) return;
  board_.mine().pulse_ns.store(NodeBoard::now_ns(), std::memory_order_relaxed);
  thread_ = std::thread([this] { watch(); });
}

Watchdog::~Watchdog() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  wake_.notify_all();
  thread_.join();
  board_.mine().pulse_ns.store(0, std::memory_order_relaxed);  // it has ended, and is not to be missed
}

void Watchdog::progress(std::string_view phase, Pace pace) {
  board_.mine().phase.set(phase);
  pace_.store(pace, std::memory_order_relaxed);
  board_.mine().progress_ns.store(NodeBoard::now_ns(), std::memory_order_relaxed);
}

void Watchdog::phase(std::string_view phase) { board_.mine().phase.set(phase); }

void Watchdog::watch() {
  const double stagger_s = kNodeStaggerSeconds * std::min(board_.node(), kMaxStaggered);
  const double tick = tick_s(limit_s_);
  const double silence_s = std::max(limit_s_, kLeastSilenceSeconds);
  std::int64_t last_ns = NodeBoard::now_ns();
  Stillness mine;
  std::vector<Stillness> pulses(static_cast<std::size_t>(board_.local_size()));
  std::unique_lock lock(mutex_);
  while (!wake_.wait_for(lock, std::chrono::duration<double>(tick), [this] { return done_; })) {
    const std::int64_t now_ns = NodeBoard::now_ns();
    const double elapsed_s = std::min(1e-9 * static_cast<double>(now_ns - last_ns), kLongestTick * tick);
    last_ns = now_ns;
    board_.mine().pulse_ns.store(now_ns, std::memory_order_relaxed);

    const double idle_s = mine.look(board_.mine().progress_ns.load(std::memory_order_relaxed), elapsed_s);
    const double allowed_s = limit_s_ * (pace_.load(std::memory_order_relaxed) == Pace::files ? kFilesFactor : 1);
    if (idle_s > allowed_s + stagger_s)
      end_job(fmt::format("no progress for {:.1f} s (watchdog limit {:g} s)", idle_s, allowed_s));
    for (int r = 0; r < board_.local_size(); ++r) {
      const NodeBoard::Slot& slot = board_.slot(r);
      const std::int64_t pulse_ns = slot.pulse_ns.load(std::memory_order_relaxed);
      const double silent_s = pulses[static_cast<std::size_t>(r)].look(pulse_ns, elapsed_s);
      if (pulse_ns != 0 && silent_s > silence_s)
        end_job(fmt::format("rank {} has not run for {:.1f} s (watchdog limit {:g} s)", slot.rank.load(), silent_s,
                            silence_s));
    }
  }
}

void Watchdog::end_job(const std::string& finding) {
  constexpr int code = static_cast<int>(ExitCode::internal);
  if (board_.claim_last_word()) {
    log::cause(describe_stuck(board_, finding, limit_s_));
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

std::string describe_stuck(const NodeBoard& board, const std::string& finding, double limit_s) {
  std::string text = fmt::format("{} on host {}:", finding, board.host());
  const int shown = std::min(board.local_size(), kMaxRanksShown);
  for (int r = 0; r < shown; ++r) text += (r == 0 ? " " : "; ") + describe_rank(board.slot(r), limit_s);
  if (shown < board.local_size()) text += fmt::format("; and {} more ranks", board.local_size() - shown);
  return text +
         "; the one that hangs is a rank that is not running or outside collectives, else the one with the fewest "
         "calls, else look for a lost link or host";
}

}  // namespace bathys::parallel
