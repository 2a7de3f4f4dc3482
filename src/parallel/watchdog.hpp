// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/node_board.hpp"

#include <condition_variable>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>

namespace bathys::parallel {

// Ends a job that makes no progress: when this rank has not called progress() for `limit_s`, prints one cause line
// with the phase of every rank of the node and ends all ranks with code 70 (MPI_Abort, or the process alone where the
// MPI library takes no calls from a second thread).  One rank of a node speaks; other nodes wait some seconds longer,
// so that a job has one line.
class Watchdog {
 public:
  // limit_s <= 0: off.  `may_call_mpi`: MPI_THREAD_MULTIPLE was granted.
  Watchdog(NodeBoard& board, double limit_s, bool may_call_mpi);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

  // Something got done; `phase` names what begins ("load layer 3", "step 12").  Called by the main thread, cheap.
  void progress(std::string_view phase);
  // Names what begins without counting as progress.
  void phase(std::string_view phase);
  [[nodiscard]] double limit_s() const { return limit_s_; }

 private:
  void watch();
  [[noreturn]] void end_job(double idle_s);

  NodeBoard& board_;
  double limit_s_;
  bool may_call_mpi_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool done_ = false;
  std::thread thread_;
};

// The line that the watchdog prints; apart for its test.
[[nodiscard]] std::string describe_stuck(const NodeBoard& board, double idle_s, double limit_s);

}  // namespace bathys::parallel
