// SPDX-License-Identifier: Apache-2.0
#include "bench/sum_bench.hpp"

#include "core/timer.hpp"
#include "kernels/experts.hpp"
#include "kernels/linear.hpp"

#include <algorithm>
#include <ostream>
#include <string>

#include <fmt/format.h>

namespace bathys::bench {
namespace {

using kernels::bf16;
using kernels::Mat;

constexpr int kGroupInputs = 1024;   // o_lora_rank of the released model
constexpr int kExpertInputs = 2304;  // moe_inter_dim
constexpr int kGroups = 8;           // output groups
constexpr int kChoices = 6;          // experts of a row
constexpr int kLocal = 2;            // of them on this rank

kernels::PackedLinear zeros(kernels::WeightKind kind, std::int64_t n, std::int64_t k) {
  const kernels::Vec<std::uint8_t> data("bench_weights", kernels::packed_bytes(kind, n, k));
  kernels::clear_packed(kind, n, k, data.data());
  return {kind, n, k, 1, data};
}

// Seconds of the fastest call.
template <class Call>
double fastest(double seconds, Call&& call) {
  double best = 1e9;
  for (const Timer all; all.seconds() < seconds;) {
    const Timer one;
    call();
    Exec().fence();
    best = std::min(best, one.seconds());
  }
  return best;
}

}  // namespace

void bench_sums(const SumBenchOptions& options, std::ostream& out) {
  const Exec exec;
  const auto dim = static_cast<std::size_t>(options.dim);
  const kernels::PackedLinear wo_b = zeros(kernels::WeightKind::fp8, options.dim, kGroupInputs);
  const kernels::PackedLinear w2 = zeros(kernels::WeightKind::fp4, options.dim, kExpertInputs);
  out << "rows  wo_b linear us  add_grain us  share | w2 linear us  sum_experts us  share\n";
  for (const std::int64_t rows : options.rows) {
    const auto t = static_cast<std::size_t>(rows);
    const Mat<bf16> x("bench_x", t * kLocal, kExpertInputs), down("bench_down", t * kLocal, dim);
    const Mat<float> grain("bench_grain", t, dim);
    const Mat<std::int64_t> sums("bench_sums", t, dim + 1);
    const Mat<std::int32_t> assignment("bench_assignment", t, kChoices);
    for (std::size_t i = 0; i < t; ++i) {
      for (std::size_t c = 0; c < kChoices; ++c)
        assignment(i, c) = c < kLocal ? static_cast<std::int32_t>(i * kLocal + c) : -1;
    }
    kernels::Activation group(rows, kGroupInputs, true), inner(rows * kLocal, kExpertInputs, true);
    kernels::prepare_q8(exec, kernels::first_rows(x, rows), kGroupInputs, group);
    kernels::prepare_q8(exec, x, kExpertInputs, inner);
    const double of_group = fastest(options.seconds, [&] { kernels::linear(exec, wo_b, 0, group, grain); });
    const double add = fastest(options.seconds, [&] { kernels::add_grain(exec, grain, kGroups, false, sums); });
    const double of_expert = fastest(options.seconds, [&] { kernels::linear(exec, w2, 0, inner, down); });
    const double sum = fastest(options.seconds, [&] { kernels::sum_experts(exec, down, assignment, sums); });
    out << fmt::format("{:4}  {:14.1f}  {:12.1f}  {:5.3f} | {:12.1f}  {:14.1f}  {:5.3f}\n", rows, of_group * 1e6,
                       add * 1e6, add / of_group, of_expert * 1e6, sum * 1e6, sum / of_expert);
    out.flush();
  }
}

}  // namespace bathys::bench
