// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/kokkos_compat.hpp"
#include "numerics/bf16.hpp"

#include <cstdint>

// What every kernel takes.  Inputs are Views of const elements by const&; the execution instance comes first, then
// inputs, scalars, outputs.  A kernel enqueues on `exec` and does not fence.  Shapes that disagree throw
// Error(internal), before anything is enqueued.  Index letters: T rows of a step, n rows
// of this call, B sequences, D dim, H heads, d head_dim, e rope dim, M copies, W window, E experts, V vocabulary.
namespace bathys::kernels {

using numerics::bf16;

template <class T>
using Vec = DeviceView<T*>;  // [n]
template <class T>
using Mat = DeviceView<T**>;  // [n, m], rows contiguous
template <class T>
using Cube = DeviceView<T***>;

// The leading n rows of a buffer that is larger than this step needs.
template <class T>
Vec<T> first_rows(const Vec<T>& v, std::int64_t n) {
  return Vec<T>(Kokkos::subview(v, Kokkos::make_pair<std::int64_t>(0, n)));
}
template <class T>
Mat<T> first_rows(const Mat<T>& v, std::int64_t n) {
  return Mat<T>(Kokkos::subview(v, Kokkos::make_pair<std::int64_t>(0, n), Kokkos::ALL));
}
template <class T>
Cube<T> first_rows(const Cube<T>& v, std::int64_t n) {
  return Cube<T>(Kokkos::subview(v, Kokkos::make_pair<std::int64_t>(0, n), Kokkos::ALL, Kokkos::ALL));
}

}  // namespace bathys::kernels
