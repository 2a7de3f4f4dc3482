// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_binding.hpp"

#include "core/error.hpp"
#include "core/kokkos_compat.hpp"

#include <algorithm>
#include <cstddef>
#include <map>
#include <utility>

#ifdef KOKKOS_ENABLE_CUDA
#include <cuda_runtime_api.h>
#endif

namespace bathys::parallel {

#ifdef KOKKOS_ENABLE_CUDA

int count_devices() {
  int count = 0;
  return cudaGetDeviceCount(&count) == cudaSuccess ? count : 0;
}

std::string device_uuid(int index) {
  cudaDeviceProp properties = {};
  const cudaError_t code = cudaGetDeviceProperties(&properties, index);
  require(code == cudaSuccess, ExitCode::internal, "cudaGetDeviceProperties({}) failed: {}", index,
          cudaGetErrorString(code));
  std::string text;
  for (const char byte : properties.uuid.bytes) text += fmt::format("{:02x}", static_cast<unsigned char>(byte));
  return text;
}

std::int64_t free_device_memory() {
  std::size_t free = 0, total = 0;
  const cudaError_t code = cudaMemGetInfo(&free, &total);
  require(code == cudaSuccess, ExitCode::internal, "cudaMemGetInfo failed: {}", cudaGetErrorString(code));
  return std::max<std::int64_t>(1, static_cast<std::int64_t>(free));
}

#else

int count_devices() { return 0; }
std::string device_uuid(int) { return {}; }
std::int64_t free_device_memory() { return 0; }

#endif

int choose_device(int local_rank, int local_size, int visible) {
  require(visible > 0, ExitCode::usage,
          "no GPU is visible to this process; ask the scheduler for one per rank, or use the CPU program");
  if (visible == 1) return 0;
  require(local_size <= visible, ExitCode::usage, "{} ranks on a node with {} visible GPUs; start one rank per GPU",
          local_size, visible);
  return local_rank;
}

void require_distinct_devices(const std::vector<DeviceName>& devices) {
  std::map<std::pair<std::string, std::string>, std::size_t> first_user;
  for (std::size_t rank = 0; rank < devices.size(); ++rank) {
    const auto [user, is_new] = first_user.try_emplace({devices[rank].host, devices[rank].uuid}, rank);
    require(is_new, ExitCode::usage,
            "ranks {} and {} on host {} share the GPU {}; start one rank per GPU (--gpus-per-node, --ntasks-per-node)",
            user->second, rank, devices[rank].host, devices[rank].uuid);
  }
}

}  // namespace bathys::parallel
