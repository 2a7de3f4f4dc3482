// SPDX-License-Identifier: Apache-2.0
// The host's linears: dealing the work to threads, and the run-time choice of the instruction set.
#include "kernels/linear.hpp"

#include "kernels/linear_checks.hpp"
#include "kernels/linear_job.hpp"

#include <algorithm>
#include <array>
#include <type_traits>

#include <hwy/targets.h>

namespace bathys::kernels {
namespace {

// A unit of work costs its rows and, in rows, what it takes to read a panel.
constexpr std::int64_t kPanelCost = 4;

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

// How the rows of a segment are cut: equal pieces of at most kMaxUnitRows, more of them where a matrix has too few
// panels to go round.
struct RowPieces {
  RowPieces(std::int64_t rows, std::int64_t panels, int n_shares) {
    constexpr std::int64_t kLeastRows = 24;
    const std::int64_t wanted =
        std::min(ceil_div(2 * n_shares, std::max<std::int64_t>(panels, 1)), ceil_div(rows, kLeastRows));
    const std::int64_t count = std::max(ceil_div(rows, kMaxUnitRows), wanted);
    size = count == 0 ? 1 : ceil_div(rows, count);
  }
  std::int64_t size = 1;
};

// Visits the pieces of all segments: visit(segment, row0, rows).
template <class Visit>
void for_each_piece(const LinearSegments& segments, std::int64_t panels, int n_shares, Visit&& visit) {
  for (std::int64_t s = 0; s < segments.count; ++s) {
    const std::int64_t end = segments.end(s);
    const RowPieces pieces(end - segments.begin(s), panels, n_shares);
    for (std::int64_t row = segments.begin(s); row < end; row += pieces.size)
      visit(s, row, std::min(pieces.size, end - row));
  }
}

struct RunShare {
  LinearJob job;
  LinearSegments segments;
  int n_shares;
  void operator()(int share) const { run_share(job, segments, share, n_shares); }
};

void launch(const char* label, const Exec& exec, const LinearJob& job, const LinearSegments& segments) {
  const int n_shares = std::max(1, static_cast<int>(exec.concurrency()));
  Kokkos::parallel_for(label, Kokkos::RangePolicy<Exec, Kokkos::IndexType<int>>(exec, 0, n_shares),
                       RunShare{job, segments, n_shares});
}

template <class T>
void set_output(LinearJob& job, const Mat<T>& y) {
  job.y_stride = static_cast<std::int64_t>(y.stride(0));
  if constexpr (std::is_same_v<T, float>) {
    job.y_f32 = y.data();
  } else {
    job.y_bf16 = y.data();
  }
}

template <class T>
void run_linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<T>& y) {
  require_matrix(w, matrix);
  require_output(w, x.rows(), y.extent(0), y.extent(1));
  LinearJob job = make_linear_job(w, x);
  if (x.rows() == 0) return;
  set_output(job, y);
  LinearSegments segments;
  segments.first_matrix = matrix;
  segments.rows = x.rows();
  launch("bathys.linear", exec, job, segments);
}

struct SimdTarget {
  const char* name;
  std::int64_t bit;
};
constexpr std::array<SimdTarget, 3> kSimdTargets{{{"AVX3_DL", HWY_AVX3_DL}, {"AVX3", HWY_AVX3}, {"AVX2", HWY_AVX2}}};

}  // namespace

LinearJob make_linear_job(const PackedLinear& w, const Activation& x) {
  require_operands(w, x);
  LinearJob job;
  job.kind = w.kind;
  job.q8 = x.is_q8();
  job.n = w.n;
  job.k = w.k;
  job.layout = packed_layout(w.kind, w.n, w.k);
  job.weights = w.data.data();
  job.values = x.values.data();
  job.value_stride = static_cast<std::int64_t>(x.values.stride(0));
  if (x.is_q8()) {
    job.scales = x.scales.data();
    job.hi = x.hi.data();
    job.lo = x.lo.data();
    job.parts = x.parts.data();
    job.sums = x.sums.data();
    job.rests = x.rests.data();
    job.hi_stride = static_cast<std::int64_t>(x.hi.stride(0));
    job.part_stride = static_cast<std::int64_t>(x.parts.stride(0));
    job.block_stride = static_cast<std::int64_t>(x.scales.stride(0));
  }
  return job;
}

// All pieces and panels lie on one line, each as long as it costs; a share is an interval of that line, and does what
// begins in it.
void run_share(const LinearJob& job, const LinearSegments& segments, int share, int n_shares) {
  const std::int64_t panels = job.layout.panels;
  std::int64_t total = 0;
  for_each_piece(segments, panels, n_shares,
                 [&](std::int64_t, std::int64_t, std::int64_t rows) { total += panels * (rows + kPanelCost); });
  const std::int64_t from = total * share / n_shares;
  const std::int64_t to = total * (share + 1) / n_shares;
  std::int64_t at = 0;
  for_each_piece(segments, panels, n_shares, [&](std::int64_t s, std::int64_t row0, std::int64_t rows) {
    const std::int64_t cost = rows + kPanelCost;
    LinearUnit unit;
    unit.matrix = segments.first_matrix + s;
    unit.panel_begin = std::clamp<std::int64_t>(ceil_div(std::max<std::int64_t>(from - at, 0), cost), 0, panels);
    unit.panel_end = std::clamp<std::int64_t>(ceil_div(std::max<std::int64_t>(to - at, 0), cost), 0, panels);
    unit.row0 = row0;
    unit.n_rows = static_cast<int>(rows);
    at += panels * cost;
    if (unit.panel_begin >= unit.panel_end) return;
    if (job.kind == WeightKind::fp4) {
      run_fp4_unit(job, unit);
    } else {
      run_float_unit(job, unit);
    }
  });
}

void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<bf16>& y) {
  run_linear(exec, w, matrix, x, y);
}

void linear(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x, const Mat<float>& y) {
  run_linear(exec, w, matrix, x, y);
}

void expert_linear(const Exec& exec, const PackedLinear& w, const Activation& x, const ExpertRows& assignment,
                   const Mat<bf16>& y) {
  require_offsets(w, assignment.offsets);
  LinearJob job = make_linear_job(w, x);
  LinearSegments segments;
  segments.count = w.count;
  segments.offsets = assignment.offsets.data();
  require_output(w, segments.end(w.count - 1), y.extent(0), y.extent(1));
  job.rows = assignment.rows.extent(0) == 0 ? nullptr : assignment.rows.data();
  set_output(job, y);
  launch("bathys.expert_linear", exec, job, segments);
}

std::string linear_simd_target() {
  const std::int64_t supported = hwy::SupportedTargets();
  for (const SimdTarget& target : kSimdTargets) {
    if ((supported & target.bit) != 0) return target.name;
  }
  return "none";
}

bool limit_linear_simd(const std::string& name) {
  hwy::SetSupportedTargetsForTest(0);
  std::int64_t allowed = hwy::SupportedTargets();
  bool found = name.empty();
  for (const SimdTarget& target : kSimdTargets) {
    found = found || (name == target.name && (allowed & target.bit) != 0);
    if (!found) allowed &= ~target.bit;
  }
  if (found && !name.empty()) hwy::SetSupportedTargetsForTest(allowed);
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return found;
}

}  // namespace bathys::kernels
