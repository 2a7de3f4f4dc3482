// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/linear.hpp"

// The same linears as a literal loop for each output, on any Kokkos device.  On devices they stand behind linear.hpp;
// on the host they are a second implementation over the same packed weights, equal to the SIMD bodies bit for bit.
namespace bathys::kernels {

void linear_portable(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x,
                     const Mat<bf16>& y);
void linear_portable(const Exec& exec, const PackedLinear& w, std::int64_t matrix, const Activation& x,
                     const Mat<float>& y);
void expert_linear_portable(const Exec& exec, const PackedLinear& w, const Activation& x, const ExpertRows& assignment,
                            const Mat<bf16>& y);

}  // namespace bathys::kernels
