// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

namespace bathys::numerics {

// Of every bit that a model computes on one kind of device.  Raise it with any change after which a log-probability or
// a drawn token of some model can be another one: an order of sums, a rounding, a function of maths.hpp, a quantizer, a
// rule of sampling or of its noise.  Runs of different versions are never mixed in one folder (a resume compares it),
// and tests/apps/report_test.py fails when results change while it does not.
inline constexpr std::string_view kNumericsVersion = "1";

}  // namespace bathys::numerics
