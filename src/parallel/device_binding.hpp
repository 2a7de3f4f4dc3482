// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace bathys::parallel {

// What a rank tells the others about its GPU.
struct DeviceName {
  std::string host;
  std::string uuid;  // as the driver names the device, whatever index it has in this process
};

// The devices this process sees; 0 in a build without CUDA.
[[nodiscard]] int count_devices();
// Host-wide name of device `index`; empty in a build without CUDA.
[[nodiscard]] std::string device_uuid(int index);

// Bytes free on the device that this process is bound to, at least 1; 0 in a build without CUDA.
[[nodiscard]] std::int64_t free_device_memory();

// The device of a rank: the only visible one (a launcher that binds hides the others), else that of its place on the
// node.
//   throws Error(usage) when there are fewer devices than ranks on the node
[[nodiscard]] int choose_device(int local_rank, int local_size, int visible);

// Two ranks on one GPU would hang NCCL.  `devices[rank]`.
//   throws Error(usage) naming the ranks, the host and the device
void require_distinct_devices(const std::vector<DeviceName>& devices);

}  // namespace bathys::parallel
