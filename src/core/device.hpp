// SPDX-License-Identifier: Apache-2.0
#pragma once

// BATHYS_FUNCTION marks a function that runs on the host and on the device, without pulling Kokkos into common headers.
#if defined(__CUDACC__) || defined(__HIPCC__)
#define BATHYS_FUNCTION __host__ __device__ inline
#else
#define BATHYS_FUNCTION inline
#endif
