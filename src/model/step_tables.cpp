// SPDX-License-Identifier: Apache-2.0
#include "model/step_tables.hpp"

namespace bathys::model {
namespace {

constexpr std::size_t kAlignment = 64;

}  // namespace

std::size_t StepTables::append(const void* data, std::size_t bytes) {
  const std::size_t offset = (host_.size() + kAlignment - 1) / kAlignment * kAlignment;
  host_.resize(offset + bytes);
  std::memcpy(host_.data() + offset, data, bytes);
  return offset;
}

void StepTables::upload(const Exec& exec) {
  if (host_.empty()) return;
  if (device_.extent(0) < host_.size()) {
    exec.fence();  // the last step may still read what is given back here
    device_ = kernels::Vec<std::uint8_t>(Kokkos::view_alloc(std::string("step_tables"), Kokkos::WithoutInitializing),
                                         host_.size() + host_.size() / 2);
  }
  const Kokkos::View<const std::uint8_t*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>> host(
      host_.data(), host_.size());
  Kokkos::deep_copy(exec, kernels::first_rows(device_, static_cast<std::int64_t>(host_.size())), host);
  for (const auto& set : pending_) set(device_.data());
}

}  // namespace bathys::model
