// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "core/error.hpp"
#include "kernels/views.hpp"

#include <cstdint>
#include <limits>

// What the sources of this folder share: row pointers, shape checks, labelled launches.
namespace bathys::kernels {

// Row i of a View, with a 64-bit offset (a View's own operator() multiplies in the type of its indices).
template <class T>
BATHYS_FUNCTION T* row_of(const Mat<T>& m, std::int64_t i) {
  return m.data() + i * static_cast<std::int64_t>(m.stride(0));
}

// The step row of row i of this call: row maps may be left empty, then row i is step row i.
BATHYS_FUNCTION std::int64_t step_row(const Vec<const std::int32_t>& rows, std::int64_t i) {
  return rows.extent(0) == 0 ? i : rows(i);
}

template <class View>
BATHYS_FUNCTION std::int64_t rows_in(const View& v) {
  return static_cast<std::int64_t>(v.extent(0));
}
template <class View>
BATHYS_FUNCTION int columns_in(const View& v) {
  return static_cast<int>(v.extent(1));
}

// throws Error(internal) when an extent is not what the kernel takes
inline void check_extent(const char* kernel, const char* what, std::int64_t found, std::int64_t expected) {
  require(found == expected, ExitCode::internal,
          "{}: {} is {}, expected {}; this is a fault of the program, please report it", kernel, what, found, expected);
}
inline void check_at_least(const char* kernel, const char* what, std::int64_t found, std::int64_t least) {
  require(found >= least, ExitCode::internal,
          "{}: {} is {}, expected at least {}; this is a fault of the program, please report it", kernel, what, found,
          least);
}
inline void check_multiple(const char* kernel, const char* what, std::int64_t found, std::int64_t unit) {
  require(found % unit == 0, ExitCode::internal,
          "{}: {} is {}, expected a multiple of {}; this is a fault of the program, please report it", kernel, what,
          found, unit);
}
// A row map is empty or names a step row for each of n rows.
inline void check_row_map(const char* kernel, const Vec<const std::int32_t>& rows, std::int64_t n) {
  if (rows.extent(0) != 0) check_at_least(kernel, "length of the row map", rows_in(rows), n);
}

// body(i) for every i < n, each on its own: one labelled launch, none for n = 0.
template <class Body>
void for_each(const Exec& exec, const char* label, std::int64_t n, const Body& body) {
  if (n <= 0) return;
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<std::int64_t>>(exec, 0, n), body);
}

// What Kokkos must be asked for where a team wants that many floats: it hands scratch out in pieces of 8 bytes, and
// where the last piece does not fit, a device gets a null pointer (the host always has room to spare).
BATHYS_FUNCTION std::int64_t team_scratch_bytes(std::int64_t floats) {
  return (floats * static_cast<std::int64_t>(sizeof(float)) + 7) / 8 * 8;
}

// A team's scratch, as many floats as its launch has said.
template <class Member>
KOKKOS_INLINE_FUNCTION float* team_scratch(const Member& member, std::int64_t floats) {
  return static_cast<float*>(member.team_scratch(1).get_shmem(team_scratch_bytes(floats)));
}

// body(member) for n teams of the device's own choice, each with scratch of its own: one labelled launch, none for n =
// 0.
//   throws Error(internal) where a launch cannot be so large
template <class Body>
void for_each_team(const Exec& exec, const char* label, std::int64_t n, std::int64_t scratch_floats, const Body& body) {
  if (n <= 0) return;
  constexpr std::int64_t kMost = std::numeric_limits<int>::max();
  check_at_least(label, "largest number of teams that Kokkos launches", kMost, n);
  check_at_least(label, "largest scratch of a team in bytes", kMost, team_scratch_bytes(scratch_floats));
  Kokkos::TeamPolicy<Exec> policy(exec, static_cast<int>(n), Kokkos::AUTO);
  policy.set_scratch_size(1, Kokkos::PerTeam(static_cast<int>(team_scratch_bytes(scratch_floats))));
  Kokkos::parallel_for(label, policy, body);
}

// Columns that one work item of an element-wise kernel takes, so that a single row still spreads over the threads.
inline constexpr int kColumnChunk = 1024;
BATHYS_FUNCTION int chunks_of(std::int64_t columns) {
  return static_cast<int>((columns + kColumnChunk - 1) / kColumnChunk);
}
BATHYS_FUNCTION int chunk_end(int chunk, int columns) {
  const int end = (chunk + 1) * kColumnChunk;
  return end < columns ? end : columns;
}

}  // namespace bathys::kernels
