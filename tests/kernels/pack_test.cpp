// SPDX-License-Identifier: Apache-2.0
#include "core/error.hpp"
#include "kernels/linear_layout.hpp"
#include "linear_support.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using kernels::packed_bytes;

std::vector<std::uint8_t> packed(const Weight& w, std::int64_t piece) {
  std::vector<std::uint8_t> out(packed_bytes(w.kind, w.n, w.k), 0xcd);
  pack(w, out.data(), piece);
  return out;
}

const WeightKind kKinds[] = {WeightKind::fp4, WeightKind::fp8, WeightKind::bf16, WeightKind::f32};

TEST(Pack, PiecesOfRowsGiveTheSameBytesAsOneCall) {
  std::mt19937 random(1);
  for (const WeightKind kind : kKinds) {
    for (const std::int64_t n : {1, 31, 32, 100}) {
      const Weight w = random_weight(kind, n, 72, random);
      EXPECT_EQ(packed(w, 32), packed(w, 0));
      EXPECT_EQ(packed(w, 64), packed(w, 0));
      if (kind != WeightKind::fp8) {
        EXPECT_EQ(packed(w, 7), packed(w, 0));
      }
    }
  }
}

TEST(Pack, EveryWeightAndScaleIsFoundWhereTheLayoutSays) {
  std::mt19937 random(2);
  for (const WeightKind kind : kKinds) {
    const Weight w = random_weight(kind, 70, 100, random);
    const std::vector<std::uint8_t> bytes = packed(w, 0);
    const kernels::PackedLayout layout = kernels::packed_layout(kind, w.n, w.k);
    EXPECT_EQ(layout.panels * layout.panel_bytes, static_cast<std::int64_t>(bytes.size()));
    for (std::int64_t n = 0; n < w.n; ++n) {
      for (std::int64_t k = 0; k < w.k; ++k) {
        const std::int64_t b = k / kernels::kBlock;
        const int r = static_cast<int>(n % kernels::kPanel), j = static_cast<int>(k % kernels::kBlock);
        const std::uint8_t* panel = bytes.data() + n / kernels::kPanel * layout.panel_bytes;
        const std::uint8_t* at = panel + layout.scale_bytes + b * layout.block_bytes + kernels::code_offset(kind, r, j);
        float value = 0;
        if (kind == WeightKind::fp4)
          value = numerics::e2m1_value(static_cast<std::uint8_t>(kernels::in_high_nibble(j) ? *at >> 4 : *at & 15));
        if (kind == WeightKind::fp8) value = numerics::e4m3_value(*at);
        if (kind == WeightKind::bf16)
          value = numerics::float_of_bits(static_cast<std::uint32_t>(at[0] | at[1] << 8) << 16);
        if (kind == WeightKind::f32) std::memcpy(&value, at, sizeof value);
        ASSERT_EQ(numerics::bits_of_float(value), numerics::bits_of_float(w.value(n, k))) << n << " " << k;
        if (w.scales.empty()) continue;
        ASSERT_EQ(numerics::e8m0_value(panel[kernels::scale_offset(kind, b, r)]), w.scale(n, b)) << n << " " << k;
      }
    }
  }
}

TEST(Pack, SizesAreMultiplesOf64AndCloseToTheStoredSize) {
  for (const WeightKind kind : kKinds) EXPECT_EQ(packed_bytes(kind, 70, 100) % 64, 0U);
  EXPECT_EQ(packed_bytes(WeightKind::fp4, 2304, 5120), 2304U * 5120 * 17 / 32);
  EXPECT_NEAR(double(packed_bytes(WeightKind::fp8, 8192, 1280)), 8192.0 * 1280, 8192.0 * 1280 * 0.004);
  EXPECT_EQ(packed_bytes(WeightKind::bf16, 16, 32), 1024U);
  EXPECT_EQ(packed_bytes(WeightKind::f32, 17, 33), 2U * 64 * 64);
}

TEST(Pack, AScaleOfAZeroBlockIsOneAndANaNScaleIsRefused) {
  Weight w{WeightKind::fp4, 1, 32, std::vector<std::uint8_t>(16, 0x80), {255}};
  EXPECT_EQ(packed(w, 0)[0], 127);
  w.codes[5] = 0x10;
  EXPECT_THROW(packed(w, 0), Error);
  Weight fp8{WeightKind::fp8, 2, 32, std::vector<std::uint8_t>(64, 0), {255}};
  EXPECT_EQ(packed(fp8, 0)[0], 127);
  fp8.codes[40] = 1;
  EXPECT_THROW(packed(fp8, 0), Error);
  fp8.scales[0] = 127;
  fp8.codes[40] = 0xff;
  EXPECT_THROW(packed(fp8, 0), Error) << "a NaN weight";
}

TEST(Pack, RowsBeyondTheMatrixAndCutTilesAreRefused) {
  std::mt19937 random(3);
  const Weight w = random_weight(WeightKind::fp8, 64, 32, random);
  std::vector<std::uint8_t> out(packed_bytes(w.kind, w.n, w.k));
  const kernels::WeightRows source{w.codes.data(), w.code_stride(), w.scales.data(), w.scale_stride()};
  EXPECT_THROW(kernels::pack_rows(w.kind, w.n, w.k, 32, 33, source, out.data()), Error);
  EXPECT_THROW(kernels::pack_rows(w.kind, w.n, w.k, 16, 16, source, out.data()), Error);
}

}  // namespace
}  // namespace bathys::test
