// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <numeric>
#include <vector>

// Plain loops in double, written from the definitions (docs/numerics.md) and not from the kernels: one row at a time.
namespace bathys::reference {

using Doubles = std::vector<double>;

inline double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

template <class X, class G>
Doubles rms_norm(const X& x, const G& gain, double eps) {
  double square = 0;
  for (const double v : x) square += v * v;
  Doubles y;
  for (std::size_t c = 0; c < x.size(); ++c) y.push_back(gain[c] * x[c] / std::sqrt(square / double(x.size()) + eps));
  return y;
}

// Hyper-connections.  m: the (2+M)M dots times rsqrt.
struct Mix {
  Doubles pre, post;
  std::vector<Doubles> comb;
};
inline Mix hc_mix(const Doubles& m, const Doubles& scale, const Doubles& base, int copies, int iters, double eps) {
  Mix out;
  const auto n = static_cast<std::size_t>(copies);
  for (std::size_t j = 0; j < n; ++j) out.pre.push_back(sigmoid(m[j] * scale[0] + base[j]) + eps);
  for (std::size_t j = n; j < 2 * n; ++j) out.post.push_back(2 * sigmoid(m[j] * scale[1] + base[j]));
  out.comb.assign(n, Doubles(n));
  for (std::size_t j = 0; j < n; ++j) {
    for (std::size_t k = 0; k < n; ++k) {
      const std::size_t at = (2 + j) * n + k;
      out.comb[j][k] = m[at] * scale[2] + base[at];
    }
    const double largest = *std::max_element(out.comb[j].begin(), out.comb[j].end());
    double sum = 0;
    for (double& c : out.comb[j]) sum += c = std::exp(c - largest);
    for (double& c : out.comb[j]) c = c / sum + eps;
  }
  const auto by_columns = [&] {
    for (std::size_t k = 0; k < n; ++k) {
      double sum = eps;
      for (std::size_t j = 0; j < n; ++j) sum += out.comb[j][k];
      for (std::size_t j = 0; j < n; ++j) out.comb[j][k] /= sum;
    }
  };
  by_columns();
  for (int i = 1; i < iters; ++i) {
    for (Doubles& row : out.comb) {
      const double sum = std::accumulate(row.begin(), row.end(), eps);
      for (double& c : row) c /= sum;
    }
    by_columns();
  }
  return out;
}
// (F x) * rsqrt(mean x^2 + eps); F [outputs, x.size()]
template <class X, class F>
Doubles hc_dots(const X& x, const F& fn, double eps) {
  double square = 0;
  for (const double v : x) square += v * v;
  const double r = 1.0 / std::sqrt(square / double(x.size()) + eps);
  Doubles m(fn.size() / x.size());
  for (std::size_t o = 0; o < m.size(); ++o) {
    for (std::size_t c = 0; c < x.size(); ++c) m[o] += double(fn[o * x.size() + c]) * x[c];
    m[o] *= r;
  }
  return m;
}

// Attention of one head over keys (= values) with a sink.  q [d], keys[k] [d]
inline Doubles attend(const Doubles& q, const std::vector<Doubles>& keys, double sink, double scale) {
  Doubles logit;
  double largest = sink;
  for (const Doubles& key : keys) {
    logit.push_back(std::inner_product(q.begin(), q.end(), key.begin(), 0.0) * scale);
    largest = std::max(largest, logit.back());
  }
  double total = std::exp(sink - largest);
  for (double& l : logit) total += l = std::exp(l - largest);
  Doubles out(q.size());
  for (std::size_t k = 0; k < keys.size(); ++k) {
    for (std::size_t c = 0; c < q.size(); ++c) out[c] += logit[k] / total * keys[k][c];
  }
  return out;
}

// Pooled group: softmax per channel over the members' gates.  kv, gate [r][d]
inline Doubles pool(const std::vector<Doubles>& kv, const std::vector<Doubles>& gate) {
  Doubles out(kv[0].size());
  for (std::size_t c = 0; c < out.size(); ++c) {
    double largest = gate[0][c];
    for (const Doubles& g : gate) largest = std::max(largest, g[c]);
    double total = 0;
    for (std::size_t t = 0; t < kv.size(); ++t) {
      const double e = std::exp(gate[t][c] - largest);
      total += e;
      out[c] += e * kv[t][c];
    }
    out[c] /= total;
  }
  return out;
}

// The k best of the scores by a full sort: larger first, then lower index; sorted ascending, -1 pads.
inline std::vector<std::int32_t> top_k(const std::vector<float>& scores, int k) {
  std::vector<std::int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  const auto rank = [&](std::int32_t i) {
    const float s = scores[static_cast<std::size_t>(i)];
    return std::isnan(s) ? -std::numeric_limits<double>::max() : std::isinf(s) ? s * 1e300 : double(s);
  };
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) { return rank(a) > rank(b); });
  order.resize(std::min(order.size(), static_cast<std::size_t>(k)));
  std::sort(order.begin(), order.end());
  order.resize(static_cast<std::size_t>(k), -1);
  return order;
}

// Candidate blocks: the newest always, then the best others; ascending, -1 pads.
inline std::vector<std::int32_t> best_blocks(const std::vector<float>& scores, int block, int k) {
  std::vector<float> best;
  for (std::size_t i = 0; i < scores.size(); ++i) {
    if (i % static_cast<std::size_t>(block) == 0) best.push_back(-std::numeric_limits<float>::infinity());
    best.back() = std::max(best.back(), scores[i]);
  }
  if (!best.empty()) best.back() = std::numeric_limits<float>::infinity();
  return top_k(best, k);
}

}  // namespace bathys::reference
