// SPDX-License-Identifier: Apache-2.0
#include "parallel/nccl_collectives.hpp"

#include "core/error.hpp"
#include "core/log.hpp"
#include "core/timer.hpp"
#include "parallel/float_order.hpp"

#include <chrono>
#include <cstdlib>
#include <exception>
#include <string_view>
#include <thread>
#include <utility>

#include <cuda_runtime_api.h>
#include <nccl.h>

extern char** environ;

namespace bathys::parallel {

// Kernels stand outside the class: nvcc takes no device lambda in a private member.  In place, float bits become keys
// and back.
void floats_to_keys(const Exec& exec, float* values, std::int64_t n) {
  Kokkos::parallel_for(
      "bathys::parallel::floats_to_keys", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, n),
      KOKKOS_LAMBDA(const std::int64_t i) {
        const std::int32_t key = key_of_float(values[i]);
        std::memcpy(values + i, &key, sizeof key);
      });
}

void keys_to_floats(const Exec& exec, float* values, std::int64_t n) {
  Kokkos::parallel_for(
      "bathys::parallel::keys_to_floats", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, n),
      KOKKOS_LAMBDA(const std::int64_t i) {
        std::int32_t key = 0;
        std::memcpy(&key, values + i, sizeof key);
        values[i] = float_of_key(key);
      });
}

namespace {

constexpr auto kPollPause = std::chrono::microseconds(20);

void check_cuda(cudaError_t code, const char* call) {
  require(code == cudaSuccess, ExitCode::internal, "{} failed: {}", call, cudaGetErrorString(code));
}

// What users set for NCCL decides how it runs, so it belongs in the log; we set none of it.
void log_nccl_setup() {
  int version = 0;
  ncclGetVersion(&version);
  std::string variables;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    if (std::string_view(*entry).substr(0, 5) == "NCCL_") variables += std::string(" ") + *entry;
  }
  log::info("nccl", "version={}.{}.{} variables=\"{}\"", version / 10000, version / 100 % 100, version % 100,
            variables);
}

class NcclCollectives final : public Collectives {
 public:
  NcclCollectives(std::unique_ptr<Collectives> host, double timeout_s) : host_(std::move(host)), timeout_s_(timeout_s) {
    ncclUniqueId id = {};
    if (host_->rank() == 0) check_nccl(ncclGetUniqueId(&id), "ncclGetUniqueId");
    host_->broadcast_host(&id, sizeof id, 0);
    ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
    config.blocking = 0;
    check_nccl(ncclCommInitRankConfig(&comm_, host_->size(), id, host_->rank(), &config), "ncclCommInitRankConfig");
    settle("ncclCommInitRankConfig");
  }

  ~NcclCollectives() override {
    if (comm_ == nullptr) return;
    // Finalizing waits for the other ranks; with an exception in flight they may not come.
    if (std::uncaught_exceptions() > 0) {
      ncclCommAbort(comm_);
      return;
    }
    ncclCommFinalize(comm_);
    ncclResult_t state = ncclInProgress;
    for (const Timer timer; timer.seconds() < timeout_s_ && state == ncclInProgress;
         std::this_thread::sleep_for(kPollPause)) {
      if (ncclCommGetAsyncError(comm_, &state) != ncclSuccess) break;
    }
    state == ncclSuccess ? ncclCommDestroy(comm_) : ncclCommAbort(comm_);
  }

  [[nodiscard]] int rank() const override { return host_->rank(); }
  [[nodiscard]] int size() const override { return host_->size(); }

  void all_reduce_sum(const Exec& exec, std::int64_t* values, std::int64_t n) override {
    all_reduce(exec, values, n, ncclInt64, ncclSum);
  }
  void all_reduce_sum(const Exec& exec, float* values, std::int64_t n) override {
    all_reduce(exec, values, n, ncclFloat32, ncclSum);
  }
  void all_reduce_max(const Exec& exec, float* values, std::int64_t n) override {
    floats_to_keys(exec, values, n);
    all_reduce(exec, values, n, ncclInt32, ncclMax);
    keys_to_floats(exec, values, n);
  }
  void all_reduce_or(const Exec& exec, void* data, std::int64_t n_bytes) override {
    // With one owner a byte, the sum is the owner's bits and never carries.  Bytes, not words: ranks must name one
    // type, and their buffers need not be aligned alike.
    all_reduce(exec, data, n_bytes, ncclUint8, ncclSum);
  }

  void all_gather(const Exec& exec, const void* mine, void* all, std::int64_t n_bytes) override {
    if (n_bytes == 0) return;
    check_nccl(ncclAllGather(mine, all, count(n_bytes), ncclUint8, comm_, exec.cuda_stream()), "ncclAllGather");
    settle("ncclAllGather");
  }

  void all_gather_v(const Exec& exec, const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    check_counts("all_gather_v", bytes_of);
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    char* place = static_cast<char*>(all);
    for (int r = 0; r < size(); ++r) {
      const std::int64_t n_bytes = bytes_of[static_cast<std::size_t>(r)];
      if (n_bytes > 0) {
        check_nccl(
            ncclBroadcast(r == rank() ? mine : place, place, count(n_bytes), ncclUint8, r, comm_, exec.cuda_stream()),
            "ncclBroadcast");
      }
      place += n_bytes;
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    settle("ncclBroadcast");
  }

  void all_to_all_v(const Exec& exec, const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                    std::span<const std::int64_t> recv_bytes) override {
    check_counts("all_to_all_v", send_bytes);
    check_counts("all_to_all_v", recv_bytes);
    check_nccl(ncclGroupStart(), "ncclGroupStart");
    const char* from = static_cast<const char*>(send);
    char* to = static_cast<char*>(recv);
    for (int r = 0; r < size(); ++r) {
      const std::int64_t out = send_bytes[static_cast<std::size_t>(r)];
      const std::int64_t in = recv_bytes[static_cast<std::size_t>(r)];
      if (out > 0) check_nccl(ncclSend(from, count(out), ncclUint8, r, comm_, exec.cuda_stream()), "ncclSend");
      if (in > 0) check_nccl(ncclRecv(to, count(in), ncclUint8, r, comm_, exec.cuda_stream()), "ncclRecv");
      from += out;
      to += in;
    }
    check_nccl(ncclGroupEnd(), "ncclGroupEnd");
    settle("ncclSend");
  }

  void broadcast(const Exec& exec, void* data, std::int64_t n_bytes, int root) override {
    if (n_bytes == 0) return;
    check_nccl(ncclBroadcast(data, data, count(n_bytes), ncclUint8, root, comm_, exec.cuda_stream()), "ncclBroadcast");
    settle("ncclBroadcast");
  }

  void wait(const Exec& exec) override {
    const Timer timer;
    for (;;) {
      const cudaError_t done = cudaStreamQuery(exec.cuda_stream());
      if (done == cudaSuccess) return;
      if (done != cudaErrorNotReady) check_cuda(done, "cudaStreamQuery");
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
      if (state != ncclSuccess && state != ncclInProgress) give_up(state, "a collective on the device");
      if (timer.seconds() > timeout_s_) give_up(ncclInProgress, "a collective on the device");
      std::this_thread::sleep_for(kPollPause);
    }
  }

  void barrier() override { host_->barrier(); }
  void broadcast_host(void* data, std::int64_t n_bytes, int root) override {
    host_->broadcast_host(data, n_bytes, root);
  }
  void all_reduce_host(std::span<std::int64_t> values, Reduce op) override { host_->all_reduce_host(values, op); }
  void all_gather_v_host(const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    host_->all_gather_v_host(mine, all, bytes_of);
  }
  void scatter_v_host(const void* all, std::span<const std::int64_t> bytes_of, void* mine, int root) override {
    host_->scatter_v_host(all, bytes_of, mine, root);
  }
  [[nodiscard]] std::vector<std::string> gather_host(const std::string& mine, int root) override {
    return host_->gather_host(mine, root);
  }
  [[nodiscard]] std::unique_ptr<Collectives> split(int colour, int key) override {
    return std::make_unique<NcclCollectives>(host_->split(colour, key), timeout_s_);
  }
  [[nodiscard]] std::unique_ptr<SharedCounters> shared_counters(int n) override { return host_->shared_counters(n); }

 private:
  static std::size_t count(std::int64_t n) {
    require(n >= 0, ExitCode::internal, "NCCL: a count of {}", n);
    return static_cast<std::size_t>(n);
  }

  void check_counts(const char* call, std::span<const std::int64_t> bytes_of) const {
    require(std::ssize(bytes_of) == size(), ExitCode::internal, "{}: {} counts for {} ranks", call, bytes_of.size(),
            size());
  }

  void all_reduce(const Exec& exec, void* data, std::int64_t n, ncclDataType_t type, ncclRedOp_t op) {
    if (n == 0) return;
    check_nccl(ncclAllReduce(data, data, count(n), type, op, comm_, exec.cuda_stream()), "ncclAllReduce");
    settle("ncclAllReduce");
  }

  // A non-blocking communicator may still be setting a call up when it returns: the stream is complete only after this.
  void settle(const char* call) {
    const Timer timer;
    for (;;) {
      ncclResult_t state = ncclSuccess;
      check_nccl(ncclCommGetAsyncError(comm_, &state), "ncclCommGetAsyncError");
      if (state == ncclSuccess) return;
      if (state != ncclInProgress || timer.seconds() > timeout_s_) give_up(state, call);
      std::this_thread::sleep_for(kPollPause);
    }
  }

  void check_nccl(ncclResult_t code, const char* call) {
    if (code != ncclSuccess && code != ncclInProgress) give_up(code, call);
  }

  [[noreturn]] void give_up(ncclResult_t code, const char* call) {
    const std::string words = code == ncclInProgress ? fmt::format("not done after {:g} s", timeout_s_)
                                                     : std::string(ncclGetErrorString(code));
    const char* const detail = comm_ == nullptr ? "" : ncclGetLastError(comm_);
    const std::string text =
        fmt::format("{} of rank {} failed: {}; {}; NCCL_DEBUG=WARN tells more, NCCL_SOCKET_IFNAME names the interface",
                    call, rank(), words, detail == nullptr ? "" : detail);
    if (comm_ != nullptr) ncclCommAbort(std::exchange(comm_, nullptr));
    fail(ExitCode::internal, "{}", text);
  }

  std::unique_ptr<Collectives> host_;
  double timeout_s_;
  ncclComm_t comm_ = nullptr;
};

}  // namespace

std::unique_ptr<Collectives> make_nccl_collectives(std::unique_ptr<Collectives> host, double timeout_s) {
  log_nccl_setup();
  return std::make_unique<NcclCollectives>(std::move(host), timeout_s);
}

}  // namespace bathys::parallel
