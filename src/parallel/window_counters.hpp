// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/parallel: SharedCounters in an MPI window.

#include "parallel/mpi_support.hpp"
#include "parallel/shared_counters.hpp"

#include <memory>

namespace bathys::parallel {

// Collective over `comm`.
//   throws Error(internal) where the MPI library has no one-sided operations between these ranks
[[nodiscard]] std::unique_ptr<SharedCounters> make_window_counters(MPI_Comm comm, int n);

}  // namespace bathys::parallel
