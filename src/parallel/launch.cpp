// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch.hpp"

#include "core/error.hpp"

#include <charconv>
#include <string_view>

#include <fmt/format.h>

namespace bathys::parallel {
namespace {

// A count as a launcher writes it, or nothing and a warning.
int read_count(const char* name, const Environment& environment, std::vector<std::string>& warnings) {
  const char* const raw = environment(name);
  if (raw == nullptr) return 0;
  const std::string_view text = raw;
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && value >= 1) return value;
  warnings.push_back(fmt::format("{}=\"{}\" is no positive number and is ignored", name, text));
  return 0;
}

}  // namespace

Launch read_launch(const Environment& environment) {
  Launch launch;
  if (const int tasks = read_count("SLURM_STEP_NUM_TASKS", environment, launch.warnings); tasks > 0)
    launch.step_tasks = tasks;
  // The allocation's own count says nothing about this start, but nonsense in it tells of a broken environment.
  (void)read_count("SLURM_NTASKS", environment, launch.warnings);
  const char* const rank = environment("PMIX_RANK");
  launch.has_pmix = environment("PMIX_NAMESPACE") != nullptr && rank != nullptr;
  const char* const mpirun_size = environment("OMPI_COMM_WORLD_SIZE");
  if (launch.has_pmix) std::from_chars(rank, rank + std::string_view(rank).size(), launch.rank);
  const auto says = [&](const char* name, std::string_view value) {
    const char* const text = environment(name);
    return text != nullptr && text == value;
  };
  const char* const here = environment("OMPI_COMM_WORLD_LOCAL_SIZE");
  launch.one_host =
      launch.has_pmix && (here != nullptr ? says("OMPI_COMM_WORLD_SIZE", here) : says("SLURM_STEP_NUM_NODES", "1"));
  launch.by_mpirun_alone = launch.has_pmix && mpirun_size != nullptr && std::string_view(mpirun_size) == "1";
  return launch;
}

void check_launch(const Launch& launch, int world, bool single_process) {
  if (launch.step_tasks == 1 || single_process) return;
  if (world == 0 && launch.has_pmix) return;  // MPI will tell
  if (world > 1 || launch.by_mpirun_alone) return;
  fail(ExitCode::usage,
       "this Slurm step has {} tasks but they do not find each other, so each would do the whole work alone; start "
       "them with "
       "`srun --mpi=pmix`, or give --single-process if one process is meant",
       launch.step_tasks);
}

}  // namespace bathys::parallel
