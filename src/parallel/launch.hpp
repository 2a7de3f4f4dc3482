// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "parallel/threads.hpp"

#include <optional>
#include <string>
#include <vector>

namespace bathys::parallel {

// What the environment says about who started this process.  Variables of a job that is not ours (an interactive
// allocation, left-overs of another launcher) are normal and must neither stop nor delay the start.
struct Launch {
  int step_tasks = 1;                 // SLURM_STEP_NUM_TASKS; 1 when absent or nonsense
  bool has_pmix = false;              // a PMIx server introduced this process (mpirun, srun --mpi=pmix)
  bool by_mpirun_alone = false;       // mpirun with one rank: one process is what the user asked for
  int rank = 0;                       // as the launcher counts; 0 where it says none
  bool one_host = false;              // all ranks were started on this host, as far as the launcher says
  std::vector<std::string> warnings;  // nonsense values, by name
};

[[nodiscard]] Launch read_launch(const Environment& environment);

// Refuses a step of several tasks that would run as that many separate worlds, each doing all the work.  `world` is 0
// before MPI is initialized: then only what cannot become right any more is refused, since MPI's own start would end
// the process.
//   throws Error(usage) naming `srun --mpi=pmix` and `--single-process`
void check_launch(const Launch& launch, int world, bool single_process);

}  // namespace bathys::parallel
