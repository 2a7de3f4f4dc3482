// SPDX-License-Identifier: Apache-2.0
#pragma once

// Private to src/parallel: no public header includes it, so that MPI stays out of other folders.

#include <utility>

#include <mpi.h>

namespace bathys::parallel {

// Throws Error(internal) with MPI's own text when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* call);

// Whether objects of MPI can be freed here: MPI is still there, and no exception is in flight, for freeing is
// collective and the others may not come (the job is about to be ended anyway).
[[nodiscard]] bool may_free_mpi() noexcept;

// Owner of one communicator whose errors are returned.
class Communicator {
 public:
  Communicator() = default;
  [[nodiscard]] static Communicator duplicate(MPI_Comm parent);
  [[nodiscard]] static Communicator split(MPI_Comm parent, int colour, int key);
  [[nodiscard]] static Communicator of_node(MPI_Comm parent);  // the ranks that share memory with this one
  ~Communicator() { release(); }
  Communicator(Communicator&& other) noexcept : comm_(std::exchange(other.comm_, MPI_COMM_NULL)) {}
  Communicator& operator=(Communicator&& other) noexcept {
    if (this != &other) {
      release();
      comm_ = std::exchange(other.comm_, MPI_COMM_NULL);
    }
    return *this;
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  [[nodiscard]] MPI_Comm get() const { return comm_; }
  [[nodiscard]] int rank() const;
  [[nodiscard]] int size() const;

 private:
  explicit Communicator(MPI_Comm comm);
  void release() noexcept;

  MPI_Comm comm_ = MPI_COMM_NULL;
};

}  // namespace bathys::parallel
