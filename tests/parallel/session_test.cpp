// SPDX-License-Identifier: Apache-2.0
// A Session inside a process that has MPI and Kokkos already: it uses both and leaves them running.
#include "parallel/session.hpp"

#include "core/kokkos_compat.hpp"
#include "parallel/collectives.hpp"
#include "parallel/watchdog.hpp"

#include <gtest/gtest.h>
#include <mpi.h>

namespace bathys::parallel {
namespace {

TEST(Session, KnowsTheWorldAndTheNode) {
  int rank = 0;
  int size = 0;
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  MPI_Comm_size(MPI_COMM_WORLD, &size);
  Session session({.threads = 1, .watchdog_s = 60});
  EXPECT_EQ(session.rank(), rank);
  EXPECT_EQ(session.size(), size);
  EXPECT_EQ(session.local_rank(), rank);  // mpirun of the tests uses one host
  EXPECT_EQ(session.local_size(), size);
  EXPECT_EQ(session.node(), 0);
  EXPECT_EQ(session.n_nodes(), 1);
  EXPECT_FALSE(session.host().empty());
  EXPECT_EQ(session.threads(), 1);
  EXPECT_EQ(session.device(), -1);
  session.watchdog().progress("test");
  EXPECT_EQ(session.world().all_reduce_host(1, Reduce::sum), size);
}

TEST(Session, LeavesWhatWasThereBefore) {
  { const Session session({.threads = 1}); }
  EXPECT_TRUE(Kokkos::is_initialized());
  int finalized = 1;
  MPI_Finalized(&finalized);
  EXPECT_EQ(finalized, 0);
  const Session again({.threads = 1});
}

}  // namespace
}  // namespace bathys::parallel
