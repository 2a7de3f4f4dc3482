// SPDX-License-Identifier: Apache-2.0
#include "eval/paired_test.hpp"

#include <algorithm>
#include <cmath>

namespace bathys::eval {
namespace {

// Continued fraction of the incomplete beta function (DLMF 8.17.22), by Lentz's method.
double beta_fraction(double a, double b, double x) {
  constexpr int kMaxTerms = 10000;
  constexpr double kTiny = 1e-300, kEnough = 1e-15;
  const auto away_from_zero = [](double value) { return std::abs(value) < kTiny ? kTiny : value; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), product = d;
  for (int m = 1; m < kMaxTerms; ++m) {
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 / away_from_zero(1 + term * d);
      c = away_from_zero(1 + term / c);
      product *= c * d;
    }
    if (std::abs(c * d - 1) < kEnough) break;
  }
  return product;
}

// Regularized incomplete beta function I_x(a, b).
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  if (x < (a + 1) / (a + b + 2)) return front * beta_fraction(a, b, x) / a;
  return 1 - front * beta_fraction(b, a, 1 - x) / b;
}

}  // namespace

double mcnemar_p(std::int64_t b, std::int64_t c) {
  const auto n = static_cast<double>(b + c);
  double tail = 0;
  for (std::int64_t k = 0; k <= std::min(b, c); ++k) {
    const auto chosen = static_cast<double>(k);
    tail += std::exp(std::lgamma(n + 1) - std::lgamma(chosen + 1) - std::lgamma(n - chosen + 1) - n * std::log(2.0));
  }
  return std::min(1.0, 2 * tail);
}

double student_p(double t, double degrees) { return incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)); }

void PairedTest::add(double a, double b) {
  ++n_;
  const auto n = static_cast<double>(n_);
  mean_a_ += (a - mean_a_) / n;
  mean_b_ += (b - mean_b_) / n;
  const double distance = (b - a) - mean_;
  mean_ += distance / n;
  squares_ += distance * ((b - a) - mean_);
  higher_ += b > a ? 1 : 0;
  lower_ += b < a ? 1 : 0;
  for (const double value : {a, b}) binary_ = binary_ && (value == 0 || value == 1);
}

PairedResult PairedTest::result() const {
  PairedResult out;
  out.n = n_;
  out.higher = higher_;
  out.lower = lower_;
  out.test = binary_ ? "exact McNemar" : "paired t";
  if (n_ == 0) return out;
  const auto n = static_cast<double>(n_);
  out.mean_a = mean_a_;
  out.mean_b = mean_b_;
  out.difference = mean_;
  if (n_ > 1) out.standard_error = std::sqrt(squares_ / (n - 1) / n);
  if (binary_) {
    out.p_value = mcnemar_p(higher_, lower_);
  } else if (n_ > 1 && higher_ + lower_ == 0) {
    out.p_value = 1;
  } else if (n_ > 1) {
    out.p_value = *out.standard_error > 0 ? student_p(mean_ / *out.standard_error, n - 1) : 0;
  }
  return out;
}

}  // namespace bathys::eval
