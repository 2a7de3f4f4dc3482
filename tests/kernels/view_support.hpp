// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

#include <cmath>
#include <cstdint>
#include <random>
#include <vector>

// Views from plain vectors and back, for tests of the kernels (on the host or on a device).
namespace bathys::test {

using kernels::Cube;
using kernels::Mat;
using kernels::Vec;
using numerics::bf16;

template <class T, class S>
Vec<T> to_vec(const std::vector<S>& values) {
  Vec<T> v("test.vec", values.size());
  const auto host = Kokkos::create_mirror_view(v);
  for (std::size_t n = 0; n < values.size(); ++n) host(n) = static_cast<T>(values[n]);
  Kokkos::deep_copy(v, host);
  return v;
}

template <class T, class S>
Mat<T> to_mat(std::int64_t rows, std::int64_t columns, const std::vector<S>& values) {
  Mat<T> m("test.mat", static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  const auto host = Kokkos::create_mirror_view(m);
  for (std::size_t n = 0; n < m.size(); ++n) host.data()[n] = static_cast<T>(values.at(n));
  Kokkos::deep_copy(m, host);
  return m;
}

// An output of the given shape, filled with a value that no kernel may leave.
template <class T>
Mat<T> poisoned(std::int64_t rows, std::int64_t columns) {
  Mat<T> m("test.out", static_cast<std::size_t>(rows), static_cast<std::size_t>(columns));
  const auto host = Kokkos::create_mirror_view(m);
  std::fill_n(reinterpret_cast<unsigned char*>(host.data()), m.size() * sizeof(T), static_cast<unsigned char>(0xff));
  Kokkos::deep_copy(m, host);
  return m;
}

template <class View>
auto to_host(const View& v) {
  Kokkos::fence();
  const auto host = Kokkos::create_mirror_view_and_copy(Kokkos::HostSpace(), v);
  using T = typename View::non_const_value_type;
  return std::vector<T>(host.data(), host.data() + host.size());
}

// The elements as floats.
template <class View>
std::vector<float> to_floats(const View& v) {
  std::vector<float> out;
  for (const auto& x : to_host(v)) out.push_back(static_cast<float>(x));
  return out;
}

// Reproducible normal values, rounded to bf16 when asked.
inline std::vector<float> random_values(std::size_t n, unsigned seed, double deviation = 1.0, bool round = true) {
  std::mt19937 generator(seed);
  std::normal_distribution<double> normal(0.0, deviation);
  std::vector<float> out(n);
  for (auto& v : out) {
    v = static_cast<float>(normal(generator));
    if (round) v = numerics::round_to_bf16(v);
  }
  return out;
}

// One part of a matrix's rows.
template <class T>
std::vector<T> slice(const std::vector<T>& v, std::int64_t begin, std::int64_t end) {
  return std::vector<T>(v.begin() + begin, v.begin() + end);
}

}  // namespace bathys::test
