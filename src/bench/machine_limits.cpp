// SPDX-License-Identifier: Apache-2.0
#include "bench/machine_limits.hpp"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "bench/machine_limits.cpp"
// clang-format off: foreach_target includes this file again for each instruction set, so it must come first
#include <hwy/foreach_target.h>
#include <hwy/highway.h>
// clang-format on

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace bathys::bench::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Reads `n` floats, a multiple of 512; the sum keeps the loads alive.
float read_all(const float* data, std::int64_t n) {
  const hn::ScalableTag<float> d;
  const auto step = static_cast<std::int64_t>(hn::Lanes(d));
  auto a = hn::Zero(d), b = a, c = a, e = a;
  for (std::int64_t i = 0; i < n; i += 4 * step) {
    a = hn::Add(a, hn::Load(d, data + i));
    b = hn::Add(b, hn::Load(d, data + i + step));
    c = hn::Add(c, hn::Load(d, data + i + 2 * step));
    e = hn::Add(e, hn::Load(d, data + i + 3 * step));
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(a, b), hn::Add(c, e))));
}

constexpr int kChains = 12;

// Returns floating-point operations done; `sink` keeps the result alive.
double run_fma(std::int64_t rounds, float* sink) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> chain[kChains];
  for (int i = 0; i < kChains; ++i) chain[i] = hn::Set(d, static_cast<float>(i));
  const auto factor = hn::Set(d, 0.999F), step = hn::Set(d, 0.001F);
  for (std::int64_t r = 0; r < rounds; ++r) {
    HWY_UNROLL(12)
    for (int i = 0; i < kChains; ++i) chain[i] = hn::MulAdd(chain[i], factor, step);
  }
  auto sum = chain[0];
  for (int i = 1; i < kChains; ++i) sum = hn::Add(sum, chain[i]);
  *sink = hn::GetLane(hn::SumOfLanes(d, sum));
  return 2.0 * kChains * static_cast<double>(rounds) * static_cast<double>(hn::Lanes(d));
}

}  // namespace bathys::bench::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/kokkos_compat.hpp"
#include "core/timer.hpp"

#include <algorithm>

namespace bathys::bench {
namespace {
HWY_EXPORT(read_all);
HWY_EXPORT(run_fma);

using Host = Kokkos::DefaultHostExecutionSpace;
using Floats = Kokkos::View<float*, Host::memory_space>;

// Runs body(thread) on every host thread until `seconds` have passed; the shortest round.
template <class Body>
double best_round(int threads, double seconds, const Body& body) {
  double best = 1e30;
  const Timer all;
  do {
    const Timer round;
    Kokkos::parallel_for("bathys.machine_limits", Kokkos::RangePolicy<Host>(0, static_cast<std::size_t>(threads)),
                         body);
    best = std::min(best, round.seconds());
  } while (all.seconds() < seconds);
  return best;
}

}  // namespace

MachineLimits measure_machine_limits(double seconds) {
  MachineLimits limits;
  limits.threads = static_cast<int>(Host().concurrency());
  constexpr std::int64_t kAlign = 512;
  constexpr std::int64_t kFloats = (std::int64_t{320} << 20) / 4;
  const std::int64_t part = kFloats / limits.threads / kAlign * kAlign;
  const Floats data("machine limits data", static_cast<std::size_t>(part * limits.threads));
  const Floats sinks("machine limits sinks", static_cast<std::size_t>(limits.threads) * 16);
  const double read = best_round(limits.threads, seconds, [=](int t) {
    sinks(16 * t) = HWY_DYNAMIC_DISPATCH(read_all)(data.data() + part * t, part);
  });
  limits.read_bytes_per_s = 4.0 * static_cast<double>(part) * limits.threads / read;
  constexpr std::int64_t kRounds = 1 << 19;
  double operations = 0;
  const double fma = best_round(limits.threads, seconds, [&](int t) {
    const double done = HWY_DYNAMIC_DISPATCH(run_fma)(kRounds, &sinks(16 * t));
    if (t == 0) operations = done;
  });
  limits.fma_flop_per_s = operations * limits.threads / fma;
  return limits;
}

}  // namespace bathys::bench
#endif  // HWY_ONCE
