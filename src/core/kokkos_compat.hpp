// SPDX-License-Identifier: Apache-2.0
#pragma once

// What differs between Kokkos 3.4 and 5.x, in one place; its own CMake target (bathys_kokkos), so that only folders
// that run kernels pay for the headers.

#include <string>

#include <Kokkos_Core.hpp>

namespace bathys {

// Where kernels run, and the Views they take: LayoutRight everywhere, so that the last index is the fast one on every
// device.
using Exec = Kokkos::DefaultExecutionSpace;
template <class T>
using DeviceView = Kokkos::View<T, Kokkos::LayoutRight, Exec::memory_space>;
// Views over somebody else's memory.
template <class T>
using UnmanagedView = Kokkos::View<T, Kokkos::LayoutRight, Exec::memory_space, Kokkos::MemoryTraits<Kokkos::Unmanaged>>;

inline constexpr bool kExecIsHost = Kokkos::SpaceAccessibility<Kokkos::HostSpace, Exec::memory_space>::accessible;

// Initializes Kokkos with `threads` host threads (0: its own choice) and the given device (-1: its own choice).
inline void initialize_kokkos(int threads, int device) {
#if KOKKOS_VERSION >= 30700
  Kokkos::InitializationSettings settings;
  if (threads > 0) settings.set_num_threads(threads);
  if (device >= 0) settings.set_device_id(device);
  settings.set_disable_warnings(true);
  Kokkos::initialize(settings);
#else
  Kokkos::InitArguments arguments;
  arguments.num_threads = threads > 0 ? threads : -1;
  arguments.device_id = device;
  arguments.disable_warnings = true;
  Kokkos::initialize(arguments);
#endif
}

// A named region for Kokkos Tools; Kokkos::Profiling::ScopedRegion exists only from 4.1 on.
class ScopedRegion {
 public:
  explicit ScopedRegion(const std::string& name) { Kokkos::Profiling::pushRegion(name); }
  ~ScopedRegion() { Kokkos::Profiling::popRegion(); }
  ScopedRegion(const ScopedRegion&) = delete;
  ScopedRegion& operator=(const ScopedRegion&) = delete;
};

}  // namespace bathys
