// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/exit_code.hpp"
#include "core/log.hpp"

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace bathys::parallel {

class Collectives;
class Watchdog;

struct SessionOptions {
  int threads = 0;              // of each rank; 0: chosen as threads.hpp says
  bool single_process = false;  // one process is wanted although the job step has more tasks
  double watchdog_s = 45;       // a job in which a rank hangs for so long is ended (watchdog.hpp); 0: never
  log::Level log_level = log::Level::info;
};

// What lives as long as the job: MPI, the ranks' knowledge of each other, the device, Kokkos, the watchdog.
// Construction and destruction are collective; parts that the process has initialized before (MPI or Kokkos in a test)
// are used and left alone.
//   throws Error(usage) when the launcher and the world disagree: Slurm started N tasks which do not find each other
class Session {
 public:
  explicit Session(const SessionOptions& options = {});
  // In reverse order.  While an exception flies, or after abort(), other ranks may be inside a collective: then
  // MPI_Abort.
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;
  [[nodiscard]] int local_rank() const;  // among the ranks of this node (those that share memory)
  [[nodiscard]] int local_size() const;
  [[nodiscard]] int node() const;  // index of this node, in the order of their lowest ranks
  [[nodiscard]] int n_nodes() const;
  [[nodiscard]] const std::string& host() const;
  [[nodiscard]] int threads() const;  // of this rank; also meant for pools that are not Kokkos's
  // The CPUs that this process was given, one bit each: the calling thread may be bound to fewer by OpenMP.
  [[nodiscard]] const std::vector<unsigned char>& cpus() const;
  [[nodiscard]] int device() const;  // index of the GPU, -1 on a CPU

  [[nodiscard]] Collectives& world();  // all ranks, over MPI
  [[nodiscard]] Watchdog& watchdog();

  // Ends the whole job with `code`: prints the text as the one cause line of this node, unless another rank was first.
  [[noreturn]] void abort(ExitCode code, std::string_view text) noexcept;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Runs `body` in a Session and makes an exit code of every ending; `main` returns it.
//   returns                    that code, the same on all ranks by body's own care
//   throws AgreedError         all ranks have it: rank 0 prints the cause line, all return its code
//   throws anything else       one cause line, then the whole job is ended with Error's code, 70 for other exceptions
int run_session(const SessionOptions& options, const std::function<ExitCode(Session&)>& body);

}  // namespace bathys::parallel
