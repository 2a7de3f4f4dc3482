// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

// Is B another score than A on the same items?
namespace bathys::eval {

struct PairedResult {
  std::int64_t n = 0;                    // items with a value on both sides
  std::optional<double> mean_a, mean_b;  // nothing without items
  std::optional<double> difference;      // mean of b - a
  std::optional<double> standard_error;  // of the difference; nothing below two items
  std::int64_t higher = 0, lower = 0;    // items where b is larger, smaller
  std::string test;                      // "exact McNemar" where all values are 0 or 1, else "paired t"
  std::optional<double> p_value;         // two-sided; nothing where the test is undefined
};

// Collects pairs of values.
class PairedTest {
 public:
  void add(double a, double b);
  [[nodiscard]] PairedResult result() const;

 private:
  std::int64_t n_ = 0, higher_ = 0, lower_ = 0;
  double mean_a_ = 0, mean_b_ = 0;
  double mean_ = 0, squares_ = 0;  // of b - a (Welford)
  bool binary_ = true;
};

// P(X <= min(b, c) or X >= max(b, c)) for X binomial with n = b + c and 1/2: 1 when both are 0.
[[nodiscard]] double mcnemar_p(std::int64_t b, std::int64_t c);
// Two-sided tail of Student's t.
[[nodiscard]] double student_p(double t, double degrees);

}  // namespace bathys::eval
