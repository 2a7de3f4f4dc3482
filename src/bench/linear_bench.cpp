// SPDX-License-Identifier: Apache-2.0
#include "bench/linear_bench.hpp"

#include "core/error.hpp"
#include "core/timer.hpp"
#include "kernels/linear.hpp"
#include "kernels/linear_job.hpp"
#include "numerics/maths.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <ostream>
#include <random>

#include <fmt/format.h>

namespace bathys::bench {
namespace {

using kernels::Activation;
using kernels::bf16;
using kernels::Mat;
using kernels::PackedLinear;
using kernels::Vec;
using kernels::WeightKind;

enum class Inputs { gauss, swiglu };

// Matrices of the released model: an expert's w1 and w2, wq_b of one eighth of the heads, wo_b.
struct Case {
  std::string kind;
  std::string name;
  std::int64_t n = 0, k = 0;
  Inputs inputs = Inputs::gauss;
};
const std::vector<Case> kCases = {
    {"fp4", "w1", 2304, 5120, Inputs::gauss},     {"fp4", "w2", 5120, 2304, Inputs::swiglu},
    {"fp8", "wq_b", 8192, 1280, Inputs::gauss},   {"fp8", "wo_b", 5120, 8192, Inputs::gauss},
    {"bf16", "dense", 2304, 5120, Inputs::gauss}, {"f32", "dense", 2304, 5120, Inputs::gauss}};

WeightKind kind_of(const std::string& name) {
  static const std::map<std::string, WeightKind> kinds = {
      {"fp4", WeightKind::fp4}, {"fp8", WeightKind::fp8}, {"bf16", WeightKind::bf16}, {"f32", WeightKind::f32}};
  const auto found = kinds.find(name);
  require(found != kinds.end(), ExitCode::usage, "bench linear: unknown kind {}, expected fp4, fp8, bf16 or f32", name);
  return found->second;
}

// What the kernels are meant to reach: for one row a share of the read bandwidth, for more rows a share of the fma
// peak.
double target_of(const Case& c, std::int64_t rows) {
  if (rows == 1) return c.kind == "fp8" ? 0.80 : 0.90;
  if (rows == 256 && c.kind != "fp4") return c.kind == "fp8" ? 0.80 : 0.85;
  if (c.kind != "fp4") return 0;
  if (rows == 256) return c.inputs == Inputs::swiglu ? 0.85 : 1.10;
  return rows == 4 ? 0.70 : rows == 16 ? 0.90 : rows == 64 ? 1.05 : 0;
}

// As many copies of a random matrix as it takes for its weights to be cold when their turn comes again.
PackedLinear random_weights(WeightKind kind, std::int64_t n, std::int64_t k, std::int64_t least_count = 1) {
  std::mt19937_64 random(1);
  const std::int64_t width = kind == WeightKind::fp4    ? k / 2
                             : kind == WeightKind::fp8  ? k
                             : kind == WeightKind::bf16 ? 2 * k
                                                        : 4 * k;
  std::vector<std::uint8_t> codes(static_cast<std::size_t>(n * width)),
      scales(static_cast<std::size_t>(n * ((k + 31) / 32)));
  for (auto& code : codes) code = static_cast<std::uint8_t>(random());
  for (auto& scale : scales) scale = static_cast<std::uint8_t>(117 + random() % 4);
  if (kind == WeightKind::fp8) {
    for (auto& code : codes) code = (code & 0x7f) == 0x7f ? 0x38 : code;
  } else if (kind != WeightKind::fp4) {
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < n * k; ++i) {
      const float v = numerics::round_to_bf16(normal(random));
      const std::uint32_t bits = numerics::bits_of_float(v);
      if (kind == WeightKind::f32) std::memcpy(codes.data() + 4 * i, &v, 4);
      if (kind == WeightKind::bf16) {
        codes[static_cast<std::size_t>(2 * i)] = static_cast<std::uint8_t>(bits >> 16);
        codes[static_cast<std::size_t>(2 * i + 1)] = static_cast<std::uint8_t>(bits >> 24);
      }
    }
  }
  constexpr std::size_t kCold = std::size_t{320} << 20;
  const std::size_t bytes = kernels::packed_bytes(kind, n, k);
  const auto count = std::max(least_count, static_cast<std::int64_t>(kCold / bytes + 1));
  Vec<std::uint8_t> data("bench weights", bytes * static_cast<std::size_t>(count));
  kernels::clear_packed(kind, n, k, data.data());
  kernels::pack_rows(kind, n, k, 0, n, {codes.data(), width, scales.data(), (k + 31) / 32}, data.data());
  for (std::int64_t i = 1; i < count; ++i)
    std::memcpy(data.data() + bytes * static_cast<std::size_t>(i), data.data(), bytes);
  return {kind, n, k, count, data};
}

Mat<const bf16> random_inputs(std::int64_t rows, std::int64_t k, Inputs inputs) {
  std::mt19937 random(2);
  std::normal_distribution<float> normal;
  Mat<bf16> x("bench inputs", static_cast<std::size_t>(rows), static_cast<std::size_t>(k));
  for (std::int64_t m = 0; m < rows; ++m) {
    for (std::int64_t j = 0; j < k; ++j) {
      const float v = normal(random);
      x(m, j) = bf16(inputs == Inputs::gauss ? v : numerics::silu(2 * v) * 2 * normal(random));
    }
  }
  return x;
}

// Mean time of a call in the fastest pass of a few milliseconds; call(i) uses matrix i.
template <class Call>
double best_pass(double seconds, Call&& call) {
  constexpr double kPass = 3e-3;
  std::int64_t i = 0;
  const auto pass = [&](std::int64_t calls) {
    const Timer timer;
    for (std::int64_t c = 0; c < calls; ++c) call(i++);
    Kokkos::fence();
    return timer.seconds() / static_cast<double>(calls);
  };
  pass(1);
  double best = pass(1);
  const Timer all;
  do {
    best = std::min(best, pass(std::max<std::int64_t>(1, static_cast<std::int64_t>(kPass / best))));
  } while (all.seconds() < seconds);
  return best;
}

void prepare(const PackedLinear& w, const Mat<const bf16>& x, Activation& a) {
  if (w.kind == WeightKind::fp4 || w.kind == WeightKind::fp8) {
    kernels::prepare_q8(Exec(), x, w.k, a);
  } else {
    kernels::prepare_plain(Exec(), x, w.k, a);
  }
}

LinearBenchLine measure(const Case& c, const PackedLinear& w, std::int64_t rows, double seconds) {
  const Mat<const bf16> x = random_inputs(rows, c.k, c.inputs);
  Activation a(rows, c.k, true);
  const Mat<bf16> y("bench outputs", static_cast<std::size_t>(rows), static_cast<std::size_t>(c.n));
  LinearBenchLine line{c.kind + " " + c.name, c.n, c.k, rows};
  line.prepare_seconds = best_pass(0.05, [&](std::int64_t) { prepare(w, x, a); });
  line.seconds = best_pass(seconds, [&](std::int64_t i) { kernels::linear(Exec(), w, i % w.count, a, y); });
  line.weight_bytes = static_cast<double>(kernels::packed_bytes(w.kind, w.n, w.k));
  line.flop = 2.0 * static_cast<double>(rows * c.n) * static_cast<double>(c.k);
  line.target = target_of(c, rows);
  line.of_bandwidth = rows == 1;
  return line;
}

// Each row goes to 6 of the 16 experts of one of several layers, dealt evenly.
LinearBenchLine measure_experts(const Case& c, const PackedLinear& w, std::int64_t rows, double seconds) {
  constexpr std::int64_t kExperts = 16, kChosen = 6;
  const Mat<const bf16> x = random_inputs(rows, c.k, c.inputs);
  Activation a(rows, c.k, true);
  prepare(w, x, a);
  Vec<std::int32_t> offsets("bench offsets", kExperts + 1),
      row_of("bench rows", static_cast<std::size_t>(rows * kChosen));
  std::int32_t at = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) {
    for (std::int64_t m = 0; m < rows; ++m) {
      if ((e - m * 5 % kExperts + kExperts) % kExperts < kChosen) row_of(at++) = static_cast<std::int32_t>(m);
    }
    offsets(e + 1) = at;
  }
  std::int64_t used = 0;
  for (std::int64_t e = 0; e < kExperts; ++e) used += offsets(e + 1) > offsets(e);
  const Mat<bf16> y("bench outputs", static_cast<std::size_t>(at), static_cast<std::size_t>(c.n));
  const std::size_t layer = kernels::packed_bytes(w.kind, w.n, w.k) * kExperts;
  const std::int64_t layers = w.count / kExperts;
  LinearBenchLine line{c.kind + " experts", c.n, c.k, rows};
  line.seconds = best_pass(seconds, [&](std::int64_t i) {
    const auto first = layer * static_cast<std::size_t>(i % layers);
    const PackedLinear one{w.kind, w.n, w.k, kExperts, Kokkos::subview(w.data, std::make_pair(first, first + layer))};
    kernels::expert_linear(Exec(), one, a, {offsets, row_of}, y);
  });
  line.weight_bytes = static_cast<double>(kernels::packed_bytes(w.kind, w.n, w.k)) * static_cast<double>(used);
  line.flop = 2.0 * static_cast<double>(at) * static_cast<double>(c.n) * static_cast<double>(c.k);
  line.of_bandwidth = rows == 1;
  return line;
}

void print(const LinearBenchLine& line, const MachineLimits& limits, std::ostream& out) {
  out << fmt::format("{:<12} {:>5} {:>5} {:>5} {:>10.1f} {:>10.1f} {:>8.2f} {:>8.1f} {:>6.2f} of {} {}\n", line.what,
                     line.n, line.k, line.rows, line.seconds * 1e6, line.prepare_seconds * 1e6,
                     line.weight_bytes / line.seconds * 1e-9, line.flop / line.seconds * 1e-9, line.ratio(limits),
                     line.of_bandwidth ? "read" : "fma ",
                     line.target > 0 ? fmt::format("(target {:.2f})", line.target) : "");
  out.flush();
}

}  // namespace

std::vector<LinearBenchLine> bench_linear(const LinearBenchOptions& options, std::ostream& out) {
  for (const std::string& kind : options.kinds) kind_of(kind);
  require(kernels::limit_linear_simd(options.simd), ExitCode::usage, "bench linear: this CPU has no {}; its best is {}",
          options.simd, kernels::linear_simd_target());
  const MachineLimits limits = measure_machine_limits();
  out << fmt::format("event=machine threads={} simd={} read_gb_s={:.1f} fma_gflop_s={:.1f}\n", limits.threads,
                     kernels::linear_simd_target(), limits.read_bytes_per_s * 1e-9, limits.fma_flop_per_s * 1e-9);
  out << fmt::format("{:<12} {:>5} {:>5} {:>5} {:>10} {:>10} {:>8} {:>8} {:>6}\n", "weights", "n", "k", "rows", "us",
                     "prepare_us", "GB/s", "GFLOP/s", "ratio");
  std::vector<LinearBenchLine> lines;
  const auto add = [&](const LinearBenchLine& line) {
    print(line, limits, out);
    lines.push_back(line);
  };
  for (const Case& c : kCases) {
    if (std::find(options.kinds.begin(), options.kinds.end(), c.kind) == options.kinds.end()) continue;
    const PackedLinear w = random_weights(kind_of(c.kind), c.n, c.k, c.kind == "fp4" ? 48 : 1);
    for (const std::int64_t rows : options.rows) add(measure(c, w, rows, options.seconds));
    if (c.kind != "fp4" || c.name != "w1") continue;
    for (const std::int64_t rows : options.rows) add(measure_experts(c, w, rows, options.seconds));
  }
  kernels::limit_linear_simd("");
  return lines;
}

}  // namespace bathys::bench
