// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "convert/source_model.hpp"

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace bathys::convert {

// E8M0 codes b (2^(b-127)) that a linear layer's weight block may have when it holds a nonzero weight.  A kernel
// multiplies the weight scale s_w with the activation scale s_a before use; s_a = 2^k with k = -22 (the quantizer's
// floor, amax 1e-4) .. 120 (the largest bfloat16), and s_a*s_w must be a normal float32, 2^-126 .. 2^127, for all of
// them: so 2^-104 <= s_w <= 2^7.
inline constexpr int kMinScaleCode = 127 - 104;
inline constexpr int kMaxScaleCode = 127 + 7;
inline constexpr std::uint8_t kNanScaleCode = 255;

// Checks the scales of one weight dataset of the source whose scales belong to a linear layer; Engram tables (scales of
// gathered values), datasets without scales and synthetic models, which are made to the rules, pass unread.
//   throws Error(bad_input) naming file, tensor and block for the NaN code anywhere, and for a code outside the above
//   range whose block holds a nonzero weight
void check_linear_scales(const SourceModel& source, std::size_t dataset);

// Position of the first NaN code among E8M0 bytes, or -1.
std::ptrdiff_t find_nan_scale(const std::byte* bytes, std::size_t count);
// The same for the NaN codes of E4M3, 0x7F and 0xFF.
std::ptrdiff_t find_nan_code(const std::byte* bytes, std::size_t count);

}  // namespace bathys::convert
