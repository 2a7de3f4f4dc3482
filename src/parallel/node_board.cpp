// SPDX-License-Identifier: Apache-2.0
#include "parallel/node_board.hpp"

#include "parallel/mpi_support.hpp"

#include <chrono>
#include <new>
#include <vector>

#include <unistd.h>

namespace bathys::parallel {
namespace {

static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<std::uint64_t>::is_always_lock_free,
              "a lock inside an atomic would not work between processes");

struct Header {
  std::atomic<std::int64_t> last_word{0};
};
constexpr std::size_t kHeaderBytes = 64;

std::string own_host_name() {
  std::vector<char> name(256, '\0');
  return ::gethostname(name.data(), name.size() - 1) == 0 ? std::string(name.data()) : std::string("unknown");
}

}  // namespace

struct NodeBoard::State {
  Communicator node_comm;
  MPI_Win window = MPI_WIN_NULL;
  std::vector<std::byte> own_memory;  // without MPI
  Header* header = nullptr;
  Slot* slots = nullptr;
  int local_rank = 0, local_size = 1, node = 0, n_nodes = 1;
  std::string host = own_host_name();

  // Lays header and slots out in `memory`, zeroed by whoever owns it.
  void place(void* memory, bool construct) {
    auto* const bytes = static_cast<std::byte*>(memory);
    if (construct) {
      new (bytes) Header;
      for (int r = 0; r < local_size; ++r) new (bytes + kHeaderBytes + static_cast<std::size_t>(r) * sizeof(Slot)) Slot;
    }
    header = std::launder(reinterpret_cast<Header*>(bytes));
    slots = std::launder(reinterpret_cast<Slot*>(bytes + kHeaderBytes));
  }
};

NodeBoard::NodeBoard(std::unique_ptr<State> state) : state_(std::move(state)) {}

std::unique_ptr<NodeBoard> NodeBoard::alone(int rank) {
  auto state = std::make_unique<State>();
  state->node = rank;
  state->own_memory.resize(kHeaderBytes + sizeof(Slot));
  state->place(state->own_memory.data(), true);
  state->slots[0].rank = rank;
  state->slots[0].progress_ns = now_ns();
  return std::unique_ptr<NodeBoard>(new NodeBoard(std::move(state)));
}

std::unique_ptr<NodeBoard> NodeBoard::over_node() {
  auto state = std::make_unique<State>();
  int world_rank = 0;
  check_mpi(MPI_Comm_rank(MPI_COMM_WORLD, &world_rank), "MPI_Comm_rank");
  state->node_comm = Communicator::of_node(MPI_COMM_WORLD);
  state->local_rank = state->node_comm.rank();
  state->local_size = state->node_comm.size();

  // Nodes are numbered by their lowest rank: count the first ranks of nodes up to one's own.
  const std::int64_t first_of_node = state->local_rank == 0 ? 1 : 0;
  std::int64_t firsts_up_to_me = 0;
  std::int64_t all_firsts = 0;
  check_mpi(MPI_Scan(&first_of_node, &firsts_up_to_me, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD), "MPI_Scan");
  check_mpi(MPI_Allreduce(&first_of_node, &all_firsts, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD), "MPI_Allreduce");
  std::int64_t node = firsts_up_to_me - 1;
  check_mpi(MPI_Bcast(&node, 1, MPI_INT64_T, 0, state->node_comm.get()), "MPI_Bcast");
  state->node = static_cast<int>(node);
  state->n_nodes = static_cast<int>(all_firsts);

  const MPI_Aint bytes =
      state->local_rank == 0
          ? static_cast<MPI_Aint>(kHeaderBytes + static_cast<std::size_t>(state->local_size) * sizeof(Slot))
          : 0;
  void* memory = nullptr;
  check_mpi(MPI_Win_allocate_shared(bytes, 1, MPI_INFO_NULL, state->node_comm.get(), static_cast<void*>(&memory),
                                    &state->window),
            "MPI_Win_allocate_shared");
  MPI_Aint segment_bytes = 0;
  int unit = 0;
  check_mpi(MPI_Win_shared_query(state->window, 0, &segment_bytes, &unit, static_cast<void*>(&memory)),
            "MPI_Win_shared_query");
  state->place(memory, state->local_rank == 0);
  check_mpi(MPI_Barrier(state->node_comm.get()), "MPI_Barrier");  // the slots exist
  Slot& mine = state->slots[state->local_rank];
  mine.rank = world_rank;
  mine.progress_ns = now_ns();
  check_mpi(MPI_Barrier(state->node_comm.get()), "MPI_Barrier");  // and say whose they are
  return std::unique_ptr<NodeBoard>(new NodeBoard(std::move(state)));
}

NodeBoard::~NodeBoard() {
  if (state_->window != MPI_WIN_NULL && may_free_mpi()) MPI_Win_free(&state_->window);
}

int NodeBoard::local_rank() const { return state_->local_rank; }
int NodeBoard::local_size() const { return state_->local_size; }
int NodeBoard::node() const { return state_->node; }
int NodeBoard::n_nodes() const { return state_->n_nodes; }
const std::string& NodeBoard::host() const { return state_->host; }
NodeBoard::Slot& NodeBoard::mine() { return state_->slots[state_->local_rank]; }
const NodeBoard::Slot& NodeBoard::slot(int local_rank) const { return state_->slots[local_rank]; }

bool NodeBoard::claim_last_word() noexcept { return state_->header->last_word.exchange(1) == 0; }

std::int64_t NodeBoard::now_ns() noexcept {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace bathys::parallel
