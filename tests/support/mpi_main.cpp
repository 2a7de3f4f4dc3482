// SPDX-License-Identifier: Apache-2.0
// main of a test that runs under mpirun: rank 0 prints, a failure on any rank fails all.
#include <Kokkos_Core.hpp>
#include <gtest/gtest.h>
#include <mpi.h>

int main(int argc, char** argv) {
  int provided = 0;
  MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
  ::testing::InitGoogleTest(&argc, argv);
  int rank = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  if (rank != 0) {
    auto& listeners = ::testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
  }
  int result = 0;
  {
    Kokkos::ScopeGuard kokkos(argc, argv);
    result = RUN_ALL_TESTS();
  }
  if (result != 0 && rank != 0) {
    const auto& unit = *::testing::UnitTest::GetInstance();
    for (int s = 0; s < unit.total_test_suite_count(); ++s) {
      for (int t = 0; t < unit.GetTestSuite(s)->total_test_count(); ++t) {
        const auto& info = *unit.GetTestSuite(s)->GetTestInfo(t);
        for (int p = 0; p < info.result()->total_part_count(); ++p) {
          const auto& part = info.result()->GetTestPartResult(p);
          if (part.failed())
            std::fprintf(stderr, "rank %d: %s.%s: %s\n", rank, info.test_suite_name(), info.name(), part.message());
        }
      }
    }
  }
  MPI_Allreduce(MPI_IN_PLACE, &result, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  MPI_Finalize();
  return result;
}
