// SPDX-License-Identifier: Apache-2.0
#include "parallel/window_counters.hpp"

#include "core/error.hpp"

#include <algorithm>

namespace bathys::parallel {
namespace {

constexpr int kOwner = 0;

class WindowCounters final : public SharedCounters {
 public:
  WindowCounters(MPI_Comm comm, int n) {
    int rank = 0;
    check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
    std::int64_t* values = nullptr;
    const MPI_Aint bytes = rank == kOwner ? n * static_cast<MPI_Aint>(sizeof(std::int64_t)) : 0;
    const int code =
        MPI_Win_allocate(bytes, sizeof(std::int64_t), MPI_INFO_NULL, comm, static_cast<void*>(&values), &window_);
    if (code != MPI_SUCCESS) {
      fail(
          ExitCode::internal,
          "the MPI library has no one-sided operations between these hosts, which replicas and groups take their "
          "work by; use a layout of tensor ranks alone, or an MPI with them (Open MPI: its osc component rdma or ucx)");
    }
    check_mpi(MPI_Win_set_errhandler(window_, MPI_ERRORS_RETURN), "MPI_Win_set_errhandler");
    if (rank == kOwner) {  // a store that later one-sided reads must see needs the window's lock
      check_mpi(MPI_Win_lock(MPI_LOCK_EXCLUSIVE, kOwner, 0, window_), "MPI_Win_lock");
      std::fill_n(values, n, 0);
      check_mpi(MPI_Win_unlock(kOwner, window_), "MPI_Win_unlock");
    }
    check_mpi(MPI_Barrier(comm), "MPI_Barrier");
    check_mpi(MPI_Win_lock_all(MPI_MODE_NOCHECK, window_), "MPI_Win_lock_all");
  }

  ~WindowCounters() override {
    if (!may_free_mpi()) return;
    MPI_Win_unlock_all(window_);
    MPI_Win_free(&window_);
  }

  std::int64_t fetch_add(int counter, std::int64_t value) override { return fetch(counter, value, MPI_SUM); }
  std::int64_t fetch_or(int counter, std::int64_t value) override { return fetch(counter, value, MPI_BOR); }
  std::int64_t read(int counter) override { return fetch(counter, 0, MPI_NO_OP); }

 private:
  std::int64_t fetch(int counter, std::int64_t value, MPI_Op op) {
    std::int64_t before = 0;
    check_mpi(MPI_Fetch_and_op(&value, &before, MPI_INT64_T, kOwner, counter, op, window_), "MPI_Fetch_and_op");
    check_mpi(MPI_Win_flush(kOwner, window_), "MPI_Win_flush");
    return before;
  }

  MPI_Win window_ = MPI_WIN_NULL;
};

}  // namespace

std::unique_ptr<SharedCounters> make_window_counters(MPI_Comm comm, int n) {
  return std::make_unique<WindowCounters>(comm, n);
}

}  // namespace bathys::parallel
