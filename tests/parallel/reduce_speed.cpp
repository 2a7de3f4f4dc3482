// SPDX-License-Identifier: Apache-2.0
// Time of the exact int64 sum, by parts and by MPI_Allreduce, beside MPI_Allreduce of as many fp32 numbers: what
// exactness costs.
//   mpirun -n 2 parallel_reduce_speed
#include "core/timer.hpp"
#include "parallel/collectives.hpp"
#include "parallel/session.hpp"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <mpi.h>

namespace bathys::parallel {
namespace {

// Median seconds of one call, the slowest rank's.
template <class Call>
double median_seconds(Collectives& world, Call&& call) {
  std::vector<double> times;
  for (int repeat = 0; repeat < 21; ++repeat) {
    world.barrier();
    const Timer timer;
    call();
    const std::vector<double> all = world.all_gather_host(timer.seconds());
    times.push_back(*std::max_element(all.begin(), all.end()));
  }
  std::nth_element(times.begin(), times.begin() + 10, times.end());
  return times[10];
}

ExitCode measure(Session& session) {
  const Exec exec;
  const auto shared = make_world_collectives();
  const auto by_parts = make_world_collectives({.shared_memory = false, .direct_reduce_bytes = 1});
  const auto by_mpi = make_world_collectives({.shared_memory = false, .direct_reduce_bytes = std::int64_t{1} << 29});
  if (session.rank() == 0) {
    std::printf("%10s %14s %14s %14s %14s   (microseconds)\n", "numbers", "int64 shared", "int64 parts", "int64 MPI",
                "fp32 MPI");
  }
  for (std::int64_t n = 1 << 6; n <= 1 << 22; n *= 2) {
    std::vector<std::int64_t> integers(static_cast<std::size_t>(n), 1);
    std::vector<float> floats(integers.size(), 1.0f);
    const auto time_of = [&](Collectives& group) {
      return 1e6 * median_seconds(session.world(), [&] { group.all_reduce_sum(exec, integers.data(), n); });
    };
    const double times[] = {time_of(*shared), time_of(*by_parts), time_of(*by_mpi),
                            1e6 * median_seconds(session.world(), [&] {
                              MPI_Allreduce(MPI_IN_PLACE, floats.data(), static_cast<int>(n), MPI_FLOAT, MPI_SUM,
                                            MPI_COMM_WORLD);
                            })};
    if (session.rank() == 0) {
      std::printf("%10lld %14.1f %14.1f %14.1f %14.1f\n", static_cast<long long>(n), times[0], times[1], times[2],
                  times[3]);
    }
  }
  return ExitCode::ok;
}

}  // namespace
}  // namespace bathys::parallel

int main() { return bathys::parallel::run_session({.threads = 1}, bathys::parallel::measure); }
