// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "parallel/collectives.hpp"
#include "parallel/float_order.hpp"
#include "parallel/mpi_support.hpp"
#include "parallel/node_board.hpp"
#include "parallel/shared_arena.hpp"
#include "parallel/window_counters.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>

namespace bathys::parallel {
namespace {

constexpr std::int64_t kMaxMessageBytes = std::int64_t{1} << 30;
constexpr int kTag = 1;  // MPI keeps the order of messages between two ranks, so one tag serves all
// From here on two rounds of direct messages are no slower than MPI_Allreduce, whose choice of algorithm is not ours
// (tests/parallel/reduce_speed.cpp).
constexpr std::int64_t kDirectReduceBytes = std::int64_t{32} << 10;

struct Outgoing {
  const void* data;
  std::int64_t n_bytes;
  int rank;
};
struct Incoming {
  void* data;
  std::int64_t n_bytes;
  int rank;
};

// Shows the name of the running collective on the node's board, for the watchdog's line.
class CallMark {
 public:
  CallMark(NodeBoard* board, const char* name) : board_(board) {
    if (board_ == nullptr) return;
    board_->mine().call.set(name);
    board_->mine().n_calls.fetch_add(1, std::memory_order_relaxed);
  }
  ~CallMark() {
    if (board_ != nullptr) board_->mine().call.set({});
  }
  CallMark(const CallMark&) = delete;
  CallMark& operator=(const CallMark&) = delete;

 private:
  NodeBoard* board_;
};

// Memory of the execution space as MPI can use it: itself where the host reaches it, else a copy for the length of one
// call.
template <class T>
class HostSide {
 public:
  HostSide(const Exec& exec, T* data, [[maybe_unused]] std::int64_t n, [[maybe_unused]] bool copy_in)
      : exec_(exec), device_(data), host_(data) {
    if constexpr (!kExecIsHost) {
      copy_ = Copy(Kokkos::view_alloc("bathys::parallel::staging", Kokkos::WithoutInitializing),
                   static_cast<std::size_t>(n));
      if (copy_in) Kokkos::deep_copy(exec_, copy_, UnmanagedView<const Value*>(device_, copy_.extent(0)));
      host_ = copy_.data();
    }
    exec_.fence();
  }
  [[nodiscard]] T* get() const { return host_; }
  void copy_back() {
    if constexpr (!kExecIsHost) {
      Kokkos::deep_copy(exec_, UnmanagedView<Value*>(device_, copy_.extent(0)), copy_);
      exec_.fence();  // the copy lives no longer than this object
    }
  }

 private:
  using Value = std::remove_const_t<T>;
  using Copy = Kokkos::View<Value*, Kokkos::HostSpace>;

  const Exec& exec_;
  T* device_;
  T* host_;
  Copy copy_;
};

template <class T>
MPI_Datatype mpi_type();
template <>
MPI_Datatype mpi_type<std::int64_t>() {
  return MPI_INT64_T;
}
template <>
MPI_Datatype mpi_type<std::int32_t>() {
  return MPI_INT32_T;
}
template <>
MPI_Datatype mpi_type<std::uint8_t>() {
  return MPI_UINT8_T;
}

std::int64_t total(std::span<const std::int64_t> bytes_of) {
  return std::accumulate(bytes_of.begin(), bytes_of.end(), std::int64_t{0});
}

const char* at(const void* base, std::int64_t offset) { return static_cast<const char*>(base) + offset; }
char* at(void* base, std::int64_t offset) { return static_cast<char*>(base) + offset; }

class MpiCollectives final : public Collectives {
 public:
  MpiCollectives(Communicator comm, const MpiOptions& options)
      : comm_(std::move(comm)), rank_(comm_.rank()), size_(comm_.size()), options_(options) {
    require(options_.max_message_bytes > 0 && options_.max_message_bytes <= kMaxMessageBytes, ExitCode::internal,
            "messages of {} bytes, expected 1 .. {}", options_.max_message_bytes, kMaxMessageBytes);
    if (options_.direct_reduce_bytes <= 0) options_.direct_reduce_bytes = kDirectReduceBytes;
    options_.direct_reduce_bytes = std::min(options_.direct_reduce_bytes, kMaxMessageBytes);
  }

  [[nodiscard]] int rank() const override { return rank_; }
  [[nodiscard]] int size() const override { return size_; }

  void all_reduce_sum(const Exec& exec, std::int64_t* values, std::int64_t n) override {
    // Unsigned arithmetic wraps where signed would be undefined; the bits are the same.
    const auto add = [](std::int64_t a, std::int64_t b) {
      return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
    };
    const CallMark mark(options_.board, "all_reduce_sum");
    HostSide<std::int64_t> host(exec, values, n, true);
    reduce(host.get(), n, MPI_SUM, add);
    host.copy_back();
  }

  void all_reduce_sum(const Exec& exec, float* values, std::int64_t n) override {
    const CallMark mark(options_.board, "all_reduce_sum");
    HostSide<float> host(exec, values, n, true);
    // Never MPI's own sum: by ascending ranks, whatever the length, and no two ranks differ in a bit.
    const auto add = [](float a, float b) { return a + b; };
    SharedArena* const shared = size_ > 1 ? arena() : nullptr;
    if (shared != nullptr) {
      shared->all_reduce(host.get(), n, add);
    } else if (size_ > 1) {
      reduce_by_parts(host.get(), n, add);
    }
    host.copy_back();
  }

  void all_reduce_max(const Exec& exec, float* values, std::int64_t n) override {
    const CallMark mark(options_.board, "all_reduce_max");
    HostSide<float> host(exec, values, n, true);
    keys_.resize(static_cast<std::size_t>(n));
    std::transform(host.get(), host.get() + n, keys_.begin(), key_of_float);
    reduce(keys_.data(), n, MPI_MAX, [](std::int32_t a, std::int32_t b) { return std::max(a, b); });
    std::transform(keys_.begin(), keys_.end(), host.get(), float_of_key);
    host.copy_back();
  }

  void all_reduce_or(const Exec& exec, void* data, std::int64_t n_bytes) override {
    const CallMark mark(options_.board, "all_reduce_or");
    HostSide<std::uint8_t> host(exec, static_cast<std::uint8_t*>(data), n_bytes, true);
    reduce(host.get(), n_bytes, MPI_BOR,
           [](std::uint8_t a, std::uint8_t b) { return static_cast<std::uint8_t>(a | b); });
    host.copy_back();
  }

  void all_gather(const Exec& exec, const void* mine, void* all, std::int64_t n_bytes) override {
    const std::vector<std::int64_t> bytes_of(static_cast<std::size_t>(size_), n_bytes);
    all_gather_v(exec, mine, all, bytes_of);
  }

  void all_gather_v(const Exec& exec, const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    check_counts("all_gather_v", bytes_of);
    const CallMark mark(options_.board, "all_gather");
    const HostSide<const char> from(exec, static_cast<const char*>(mine), bytes_of[static_cast<std::size_t>(rank_)],
                                    true);
    HostSide<char> to(exec, static_cast<char*>(all), total(bytes_of), false);
    gather_to_all(from.get(), to.get(), bytes_of);
    to.copy_back();
  }

  void all_to_all_v(const Exec& exec, const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                    std::span<const std::int64_t> recv_bytes) override {
    check_counts("all_to_all_v", send_bytes);
    check_counts("all_to_all_v", recv_bytes);
    const CallMark mark(options_.board, "all_to_all_v");
    const HostSide<const char> from(exec, static_cast<const char*>(send), total(send_bytes), true);
    HostSide<char> to(exec, static_cast<char*>(recv), total(recv_bytes), false);
    begin_exchange();
    std::int64_t send_at = 0;
    std::int64_t recv_at = 0;
    for (int r = 0; r < size_; ++r) {
      const auto index = static_cast<std::size_t>(r);
      if (r == rank_) {
        require(send_bytes[index] == recv_bytes[index], ExitCode::internal,
                "all_to_all_v: rank {} sends itself {} bytes and expects {}", r, send_bytes[index], recv_bytes[index]);
        std::copy_n(at(from.get(), send_at), send_bytes[index], at(to.get(), recv_at));
      } else {
        outgoing_.push_back({at(from.get(), send_at), send_bytes[index], r});
        incoming_.push_back({at(to.get(), recv_at), recv_bytes[index], r});
      }
      send_at += send_bytes[index];
      recv_at += recv_bytes[index];
    }
    exchange();
    to.copy_back();
  }

  void broadcast(const Exec& exec, void* data, std::int64_t n_bytes, int root) override {
    HostSide<char> host(exec, static_cast<char*>(data), n_bytes, rank_ == root);
    broadcast_host(host.get(), n_bytes, root);
    if (rank_ != root) host.copy_back();
  }

  void wait(const Exec& exec) override { exec.fence(); }

  void barrier() override {
    const CallMark mark(options_.board, "barrier");
    check_mpi(MPI_Barrier(comm_.get()), "MPI_Barrier");
  }

  void broadcast_host(void* data, std::int64_t n_bytes, int root) override {
    const CallMark mark(options_.board, "broadcast");
    for (std::int64_t done = 0; done < n_bytes; done += options_.max_message_bytes) {
      const std::int64_t part = std::min(options_.max_message_bytes, n_bytes - done);
      check_mpi(MPI_Bcast(at(data, done), static_cast<int>(part), MPI_BYTE, root, comm_.get()), "MPI_Bcast");
    }
  }

  void all_reduce_host(std::span<std::int64_t> values, Reduce op) override {
    const CallMark mark(options_.board, "all_reduce_host");
    const MPI_Op ops[] = {MPI_SUM, MPI_MIN, MPI_MAX};
    constexpr std::int64_t kMaxValues = 1 << 20;
    for (std::int64_t done = 0; done < std::ssize(values); done += kMaxValues) {
      const auto part = static_cast<int>(std::min(kMaxValues, std::ssize(values) - done));
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, values.data() + done, part, mpi_type<std::int64_t>(),
                              ops[static_cast<int>(op)], comm_.get()),
                "MPI_Allreduce");
    }
  }

  void all_gather_v_host(const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    check_counts("all_gather_v_host", bytes_of);
    const CallMark mark(options_.board, "all_gather_host");
    gather_to_all(mine, all, bytes_of);
  }

  void scatter_v_host(const void* all, std::span<const std::int64_t> bytes_of, void* mine, int root) override {
    check_counts("scatter_v_host", bytes_of);
    const CallMark mark(options_.board, "scatter_host");
    begin_exchange();
    if (rank_ == root) {
      std::int64_t offset = 0;
      for (int r = 0; r < size_; ++r) {
        const std::int64_t n_bytes = bytes_of[static_cast<std::size_t>(r)];
        if (r != root) {
          outgoing_.push_back({at(all, offset), n_bytes, r});
        } else if (n_bytes > 0) {
          std::memmove(mine, at(all, offset), static_cast<std::size_t>(n_bytes));
        }
        offset += n_bytes;
      }
    } else {
      incoming_.push_back({mine, bytes_of[static_cast<std::size_t>(rank_)], root});
    }
    exchange();
  }

  [[nodiscard]] std::vector<std::string> gather_host(const std::string& mine, int root) override {
    const CallMark mark(options_.board, "gather_host");
    const auto my_length = static_cast<std::int64_t>(mine.size());
    std::vector<std::int64_t> lengths(rank_ == root ? static_cast<std::size_t>(size_) : 0);
    check_mpi(MPI_Gather(&my_length, 1, mpi_type<std::int64_t>(), lengths.data(), 1, mpi_type<std::int64_t>(), root,
                         comm_.get()),
              "MPI_Gather");
    std::vector<std::string> texts(lengths.size());
    begin_exchange();
    if (rank_ == root) {
      for (int r = 0; r < size_; ++r) {
        std::string& text = texts[static_cast<std::size_t>(r)];
        if (r == root) {
          text = mine;
          continue;
        }
        text.resize(static_cast<std::size_t>(lengths[static_cast<std::size_t>(r)]));
        incoming_.push_back({text.data(), std::ssize(text), r});
      }
    } else {
      outgoing_.push_back({mine.data(), my_length, root});
    }
    exchange();
    return texts;
  }

  [[nodiscard]] std::unique_ptr<Collectives> split(int colour, int key) override {
    require(colour >= 0, ExitCode::internal, "split: colour {} is negative", colour);
    return std::make_unique<MpiCollectives>(Communicator::split(comm_.get(), colour, key), options_);
  }

  [[nodiscard]] std::unique_ptr<SharedCounters> shared_counters(int n) override {
    return make_window_counters(comm_.get(), n);
  }

 private:
  void check_counts(const char* call, std::span<const std::int64_t> bytes_of) const {
    require(std::ssize(bytes_of) == size_, ExitCode::internal, "{}: {} counts for {} ranks", call, bytes_of.size(),
            size_);
    require(std::all_of(bytes_of.begin(), bytes_of.end(), [](std::int64_t n) { return n >= 0; }), ExitCode::internal,
            "{}: a negative count", call);
  }

  void begin_exchange() {
    outgoing_.clear();
    incoming_.clear();
  }

  // Moves outgoing_ and incoming_, split into messages that MPI can count, and waits for all of them.
  void exchange() {
    requests_.clear();
    const auto for_parts = [this](std::int64_t n_bytes, auto&& post) {
      for (std::int64_t done = 0; done < n_bytes; done += options_.max_message_bytes) {
        requests_.push_back(MPI_REQUEST_NULL);
        post(done, static_cast<int>(std::min(options_.max_message_bytes, n_bytes - done)), &requests_.back());
      }
    };
    for (const Incoming& in : incoming_) {
      for_parts(in.n_bytes, [&](std::int64_t done, int part, MPI_Request* request) {
        check_mpi(MPI_Irecv(at(in.data, done), part, MPI_BYTE, in.rank, kTag, comm_.get(), request), "MPI_Irecv");
      });
    }
    for (const Outgoing& out : outgoing_) {
      for_parts(out.n_bytes, [&](std::int64_t done, int part, MPI_Request* request) {
        check_mpi(MPI_Isend(at(out.data, done), part, MPI_BYTE, out.rank, kTag, comm_.get(), request), "MPI_Isend");
      });
    }
    statuses_.resize(requests_.size());
    const int code = MPI_Waitall(static_cast<int>(requests_.size()), requests_.data(), statuses_.data());
    if (code == MPI_ERR_IN_STATUS) {
      for (const MPI_Status& status : statuses_) {
        if (status.MPI_ERROR != MPI_ERR_PENDING) check_mpi(status.MPI_ERROR, "MPI_Waitall");
      }
    }
    check_mpi(code, "MPI_Waitall");
  }

  // Every rank's piece to all; a rank's own may already be in its place.
  void gather_to_all(const void* mine, void* all, std::span<const std::int64_t> bytes_of) {
    const std::int64_t offset = total(bytes_of.first(static_cast<std::size_t>(rank_)));
    const std::int64_t my_bytes = bytes_of[static_cast<std::size_t>(rank_)];
    if (my_bytes > 0 && mine != at(all, offset))
      std::memmove(at(all, offset), mine, static_cast<std::size_t>(my_bytes));
    begin_exchange();
    std::int64_t begin = 0;
    for (int r = 0; r < size_; ++r) {
      const std::int64_t n_bytes = bytes_of[static_cast<std::size_t>(r)];
      if (r != rank_) {
        outgoing_.push_back({at(all, offset), my_bytes, r});
        incoming_.push_back({at(all, begin), n_bytes, r});
      }
      begin += n_bytes;
    }
    exchange();
  }

  // Ranks of one node reduce in shared memory, which is made at the first reduction.  Collective.
  [[nodiscard]] SharedArena* arena() {
    if (!arena_asked_ && options_.shared_memory) arena_ = SharedArena::over(comm_.get());
    arena_asked_ = true;
    return arena_.get();
  }

  template <class T, class Combine>
  void reduce(T* values, std::int64_t n, MPI_Op op, Combine combine) {
    if (size_ == 1 || n == 0) return;
    if (SharedArena* const shared = arena()) {
      shared->all_reduce(values, n, combine);
    } else if (n * static_cast<std::int64_t>(sizeof(T)) >= options_.direct_reduce_bytes) {
      reduce_by_parts(values, n, combine);
    } else {
      check_mpi(MPI_Allreduce(MPI_IN_PLACE, values, static_cast<int>(n), mpi_type<T>(), op, comm_.get()),
                "MPI_Allreduce");
    }
  }

  // Two rounds of direct messages: each rank receives everybody's copy of its part, combines them by ascending rank,
  // and hands the result to all.
  template <class T, class Combine>
  void reduce_by_parts(T* values, std::int64_t n, Combine combine) {
    const auto begin_of = [this, n](int r) { return part_begin(n, size_, r); };
    const std::int64_t begin = begin_of(rank_);
    const std::int64_t mine = begin_of(rank_ + 1) - begin;
    work_.resize(static_cast<std::size_t>(mine * (size_ - 1)) * sizeof(T));
    T* const copies = reinterpret_cast<T*>(work_.data());
    begin_exchange();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::int64_t part = begin_of(r + 1) - begin_of(r);
      outgoing_.push_back({values + begin_of(r), part * static_cast<std::int64_t>(sizeof(T)), r});
      incoming_.push_back({copies + mine * (r < rank_ ? r : r - 1), mine * static_cast<std::int64_t>(sizeof(T)), r});
    }
    exchange();
    T* const own = values + begin;
    if (rank_ == 0) {
      for (int c = 0; c < size_ - 1; ++c) {
        for (std::int64_t i = 0; i < mine; ++i) own[i] = combine(own[i], copies[c * mine + i]);
      }
    } else {  // the lower ranks first, into rank 0's copy
      for (int c = 1; c < rank_; ++c) {
        for (std::int64_t i = 0; i < mine; ++i) copies[i] = combine(copies[i], copies[c * mine + i]);
      }
      for (std::int64_t i = 0; i < mine; ++i) own[i] = combine(copies[i], own[i]);
      for (int c = rank_; c < size_ - 1; ++c) {
        for (std::int64_t i = 0; i < mine; ++i) own[i] = combine(own[i], copies[c * mine + i]);
      }
    }
    begin_exchange();
    for (int r = 0; r < size_; ++r) {
      if (r == rank_) continue;
      const std::int64_t part = begin_of(r + 1) - begin_of(r);
      outgoing_.push_back({own, mine * static_cast<std::int64_t>(sizeof(T)), r});
      incoming_.push_back({values + begin_of(r), part * static_cast<std::int64_t>(sizeof(T)), r});
    }
    exchange();
  }

  Communicator comm_;
  int rank_;
  int size_;
  MpiOptions options_;
  std::unique_ptr<SharedArena> arena_;
  bool arena_asked_ = false;
  // Kept between calls, so that a repeated call allocates nothing.
  std::vector<Outgoing> outgoing_;
  std::vector<Incoming> incoming_;
  std::vector<MPI_Request> requests_;
  std::vector<MPI_Status> statuses_;
  std::vector<std::byte> work_;
  std::vector<std::int32_t> keys_;
};

}  // namespace

std::unique_ptr<Collectives> make_world_collectives(const MpiOptions& options) {
  return std::make_unique<MpiCollectives>(Communicator::duplicate(MPI_COMM_WORLD), options);
}

}  // namespace bathys::parallel
