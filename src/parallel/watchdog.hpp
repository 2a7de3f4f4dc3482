// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/node_board.hpp"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace bathys::parallel {

// What a rank waits for until its next sign of progress, so how long that may take.
enum class Pace {
  compute,  // the watchdog's limit
  files     // kFilesFactor times the limit: a parallel file system that fails over stands still for minutes
};
inline constexpr double kFilesFactor = 12;

// Ends a job in which a rank hangs: prints one cause line with the phase of every rank of the node and ends all ranks
// with code 70 (MPI_Abort, or the process alone where the MPI library takes no calls from a second thread), when
// * this rank has not called progress() for as long as its pace allows, or
// * another process of this node has not run for `limit_s`, and 5 s (stopped, swapped out), whatever this rank does.
// Both are counted in time in which this process ran: a job that the scheduler suspends as a whole goes on afterwards.
// One rank of a node speaks; other nodes wait some seconds longer, so that a job has one line.
class Watchdog {
 public:
  // limit_s <= 0: off.  `may_call_mpi`: MPI_THREAD_MULTIPLE was granted.
  Watchdog(NodeBoard& board, double limit_s, bool may_call_mpi);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Something got done; `phase` names what begins ("load weights", "step 12, layer 3").  Called by the main thread,
  // cheap.
  void progress(std::string_view phase, Pace pace = Pace::files);
  // Names what begins without counting as progress.
  void phase(std::string_view phase);
  [[nodiscard]] double limit_s() const { return limit_s_; }

 private:
  void watch();
  [[noreturn]] void end_job(const std::string& finding);

  NodeBoard& board_;
  double limit_s_;
  bool may_call_mpi_;
  std::atomic<Pace> pace_{Pace::files};
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// The line that the watchdog prints; apart for its test.
[[nodiscard]] std::string describe_stuck(const NodeBoard& board, const std::string& finding, double limit_s);

}  // namespace bathys::parallel
