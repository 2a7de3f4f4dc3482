// SPDX-License-Identifier: Apache-2.0
#include "parallel/shared_arena.hpp"

#include <exception>
#include <new>
#include <utility>

namespace bathys::parallel {

std::unique_ptr<SharedArena> SharedArena::over(MPI_Comm comm) {
  int size = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  Communicator node = Communicator::of_node(comm);
  if (node.size() != size) return nullptr;  // then no rank sees all of them on its node
  const int rank = node.rank();
  const MPI_Aint bytes =
      rank == 0 ? static_cast<MPI_Aint>(sizeof(Cell) * static_cast<std::size_t>(size) + alignof(Cell)) : 0;
  void* memory = nullptr;
  MPI_Win window = MPI_WIN_NULL;
  check_mpi(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, node.get(), static_cast<void*>(&memory), &window),
            "MPI_Win_allocate_shared");
  MPI_Aint segment_bytes = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(window, 0, &segment_bytes, &unit, static_cast<void*>(&memory)),
            "MPI_Win_shared_query");
  // Pages of the window are aligned alike in all processes; the library's own header before it need not be.
  const auto address = reinterpret_cast<std::uintptr_t>(memory);
  auto* const bytes_begin = static_cast<std::byte*>(memory) + (alignof(Cell) - address % alignof(Cell)) % alignof(Cell);
  auto* const cells = reinterpret_cast<Cell*>(bytes_begin);
  new (cells + rank) Cell;  // by its rank, so that the pages are near its cores
  check_mpi(MPI_Barrier(node.get()), "MPI_Barrier");
  return std::unique_ptr<SharedArena>(new SharedArena(std::move(node), window, cells));
}

SharedArena::~SharedArena() {
  if (may_free_mpi()) MPI_Win_free(&window_);
}

}  // namespace bathys::parallel
