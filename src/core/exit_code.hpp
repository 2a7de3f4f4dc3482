// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace bathys {

// The program's exit codes; scripts rely on them (docs/running.md). 1 is never ours.
enum class ExitCode : int {
  ok = 0,     // all done
  usage = 2,  // command line, a config or a layout that cannot be, an unwritable output folder, a refused resume
  bad_requests = 65,  // the request file is invalid
  bad_input = 66,     // a file missing, unreadable, truncated, inconsistent or failing its checksum
  internal = 70,      // internal error, MPI, NCCL, device, watchdog
  stopped = 75,       // stopped early (also: disk full); run the same command again to go on
  some_failed = 76,   // finished, but some items failed (they are listed)
};

}  // namespace bathys
