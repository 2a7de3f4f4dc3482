// SPDX-License-Identifier: Apache-2.0
#include "parallel/mpi_support.hpp"

#include "core/error.hpp"

#include <array>
#include <exception>
#include <string_view>

namespace bathys::parallel {

void check_mpi(int code, const char* call) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ExitCode::internal, "{} failed: {}; a lost rank or link, see the launcher's messages", call,
       std::string_view(text.data(), static_cast<std::size_t>(length)));
}

Communicator::Communicator(MPI_Comm comm) : comm_(comm) {
  check_mpi(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
}

Communicator Communicator::duplicate(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(parent, &comm), "MPI_Comm_dup");
  return Communicator(comm);
}

Communicator Communicator::split(MPI_Comm parent, int colour, int key) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split(parent, colour, key, &comm), "MPI_Comm_split");
  return Communicator(comm);
}

Communicator Communicator::of_node(MPI_Comm parent) {
  MPI_Comm comm = MPI_COMM_NULL;
  check_mpi(MPI_Comm_split_type(parent, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &comm), "MPI_Comm_split_type");
  return Communicator(comm);
}

int Communicator::rank() const {
  int rank = 0;
  check_mpi(MPI_Comm_rank(comm_, &rank), "MPI_Comm_rank");
  return rank;
}

int Communicator::size() const {
  int size = 0;
  check_mpi(MPI_Comm_size(comm_, &size), "MPI_Comm_size");
  return size;
}

bool may_free_mpi() noexcept {
  if (std::uncaught_exceptions() != 0) return false;
  int finalized = 0;
  MPI_Finalized(&finalized);
  return finalized == 0;
}

void Communicator::release() noexcept {
  if (comm_ != MPI_COMM_NULL && may_free_mpi()) MPI_Comm_free(&comm_);
  comm_ = MPI_COMM_NULL;
}

}  // namespace bathys::parallel
