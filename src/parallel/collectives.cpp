// SPDX-License-Identifier: Apache-2.0
#include "parallel/collectives.hpp"

#include "core/error.hpp"
#include "parallel/float_order.hpp"

#include <cstring>
#include <utility>

namespace bathys::parallel {

std::int64_t Collectives::all_reduce_host(std::int64_t value, Reduce op) {
  all_reduce_host(std::span(&value, 1), op);
  return value;
}

std::string Collectives::broadcast_host(const std::string& text, int root) {
  auto length = static_cast<std::int64_t>(text.size());
  broadcast_host(&length, sizeof length, root);
  std::string result = rank() == root ? text : std::string(static_cast<std::size_t>(length), '\0');
  broadcast_host(result.data(), length, root);
  return result;
}

// A lambda for the device may not stand in a private member or an unnamed namespace's class, so the kernel is a
// function.
void canonical_nans(const Exec& exec, float* values, std::int64_t n) {
  Kokkos::parallel_for(
      "bathys::parallel::canonical_nans", Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, n),
      KOKKOS_LAMBDA(const std::int64_t i) { values[i] = float_of_key(key_of_float(values[i])); });
}

namespace {

void copy_bytes(const void* from, void* to, std::int64_t n_bytes) {
  if (n_bytes > 0 && from != to) std::memmove(to, from, static_cast<std::size_t>(n_bytes));
}

void copy_on_device(const Exec& exec, const void* from, void* to, std::int64_t n_bytes) {
  if (n_bytes == 0 || from == to) return;
  const auto n = static_cast<std::size_t>(n_bytes);
  Kokkos::deep_copy(exec, UnmanagedView<char*>(static_cast<char*>(to), n),
                    UnmanagedView<const char*>(static_cast<const char*>(from), n));
}

// Counters of one rank: nobody else changes them.
class OwnCounters final : public SharedCounters {
 public:
  explicit OwnCounters(int n) : values_(static_cast<std::size_t>(n)) {}
  std::int64_t fetch_add(int counter, std::int64_t value) override {
    return std::exchange(at(counter), at(counter) + value);
  }
  std::int64_t fetch_or(int counter, std::int64_t value) override {
    return std::exchange(at(counter), at(counter) | value);
  }
  std::int64_t read(int counter) override { return at(counter); }

 private:
  std::int64_t& at(int counter) { return values_.at(static_cast<std::size_t>(counter)); }
  std::vector<std::int64_t> values_;
};

class SingleCollectives final : public Collectives {
 public:
  [[nodiscard]] int rank() const override { return 0; }
  [[nodiscard]] int size() const override { return 1; }

  void all_reduce_sum(const Exec&, std::int64_t*, std::int64_t) override {}
  void all_reduce_sum(const Exec&, float*, std::int64_t) override {}
  // One rank gives the bits that several would.
  void all_reduce_max(const Exec& exec, float* values, std::int64_t n) override { canonical_nans(exec, values, n); }
  void all_reduce_or(const Exec&, void*, std::int64_t) override {}
  void all_gather(const Exec& exec, const void* mine, void* all, std::int64_t n_bytes) override {
    copy_on_device(exec, mine, all, n_bytes);
  }
  void all_gather_v(const Exec& exec, const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    copy_on_device(exec, mine, all, bytes_of[0]);
  }
  void all_to_all_v(const Exec& exec, const void* send, std::span<const std::int64_t> send_bytes, void* recv,
                    std::span<const std::int64_t> recv_bytes) override {
    require(send_bytes[0] == recv_bytes[0], ExitCode::internal, "all_to_all_v: {} bytes sent, {} expected",
            send_bytes[0], recv_bytes[0]);
    copy_on_device(exec, send, recv, send_bytes[0]);
  }
  void broadcast(const Exec&, void*, std::int64_t, int) override {}
  void wait(const Exec& exec) override { exec.fence(); }

  void barrier() override {}
  void broadcast_host(void*, std::int64_t, int) override {}
  void all_reduce_host(std::span<std::int64_t>, Reduce) override {}
  void all_gather_v_host(const void* mine, void* all, std::span<const std::int64_t> bytes_of) override {
    copy_bytes(mine, all, bytes_of[0]);
  }
  void scatter_v_host(const void* all, std::span<const std::int64_t> bytes_of, void* mine, int) override {
    copy_bytes(all, mine, bytes_of[0]);
  }
  [[nodiscard]] std::vector<std::string> gather_host(const std::string& mine, int) override { return {mine}; }
  [[nodiscard]] std::unique_ptr<Collectives> split(int, int) override { return make_single_collectives(); }
  [[nodiscard]] std::unique_ptr<SharedCounters> shared_counters(int n) override {
    return std::make_unique<OwnCounters>(n);
  }
};

}  // namespace

std::unique_ptr<Collectives> make_single_collectives() { return std::make_unique<SingleCollectives>(); }

}  // namespace bathys::parallel
