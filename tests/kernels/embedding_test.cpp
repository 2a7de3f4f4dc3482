// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include "kernels/view_support.hpp"
#include "reference/linear.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

class HashGolden : public testing::TestWithParam<std::string> {};

TEST_P(HashGolden, row_ids_equal_the_golden_ones_with_and_without_dead_positions) {
  const GoldenFile file("ops.h5");
  const std::string group = "engram/" + GetParam();
  const auto ids = file.array(group + "/compressed_ids");
  const auto alive = file.array(group + "/alive");
  const auto multipliers = file.array(group + "/multipliers");
  const auto primes = file.array(group + "/primes");
  const auto offsets = file.array(group + "/offsets");
  const auto max_ngram = static_cast<int>(file.attribute(group, "max_ngram"));
  const auto heads = static_cast<int>(file.attribute(group, "n_heads"));
  const auto pad = static_cast<std::int64_t>(file.attribute(group, "pad"));
  const std::int64_t columns = (max_ngram - 1) * heads;
  for (const bool masked : {false, true}) {
    const auto want = file.array(group + (masked ? "/rows_masked" : "/rows_text"));
    std::vector<std::int64_t> got;
    for (std::int64_t t = 0; t < ids.size(); ++t) {
      // The pad class stands in for everything from the first look-back on that leaves the text or meets a dead
      // position.
      std::vector<std::int64_t> history(static_cast<std::size_t>(max_ngram), pad);
      for (std::int64_t i = 0; i < max_ngram && i <= t; ++i) {
        const auto at = static_cast<std::size_t>(t - i);
        if (masked && alive.i[at] == 0) break;
        history[static_cast<std::size_t>(i)] = ids.i[at];
      }
      for (std::int64_t layer = 0; layer < multipliers.rows(); ++layer) {
        std::vector<std::int64_t> out(static_cast<std::size_t>(columns));
        engram_hash(history.data(), multipliers.i.data() + layer * max_ngram, primes.i.data() + layer * columns,
                    offsets.i.data() + layer * columns, max_ngram, heads, out.data());
        got.insert(got.end(), out.begin(), out.end());
      }
    }
    EXPECT_EQ(got, want.i) << group << (masked ? " masked" : "");
  }
}

INSTANTIATE_TEST_SUITE_P(All, HashGolden, testing::Values("hash_small", "hash_release"),
                         [](const auto& tested) { return tested.param; });

TEST(Engram, lookup_and_gate_equal_the_golden_layer) {
  const GoldenFile file("ops.h5");
  const auto get = [&](const char* name) { return file.array(std::string("engram/layer/") + name); };
  const auto rows = get("rows");
  const auto table = get("table");
  const auto table_scale = get("table_scale");
  const auto width = table.row_size();
  const std::int64_t n = rows.rows();
  const auto found = poisoned<bf16>(n, rows.row_size() * width);
  engram_lookup(Exec(), to_mat<std::int64_t>(n, rows.row_size(), rows.i),
                to_mat<std::uint8_t>(table.rows(), width, table.i),
                to_mat<std::uint8_t>(table.rows(), width / 32, table_scale.i), 0, found);

  const auto wkv = get("wkv");
  const reference::Weight weight{WeightKind::fp8, wkv.rows(), wkv.row_size(), wkv.bytes(), get("wkv_scale").bytes()};
  const auto values = to_floats(found);
  std::vector<float> kv;
  for (std::int64_t i = 0; i < n; ++i) {
    const auto row = reference::q8_row(slice(values, i * weight.k, (i + 1) * weight.k));
    for (std::int64_t c = 0; c < weight.n; ++c)
      kv.push_back(numerics::round_to_bf16(reference::linear(weight, c, row)));
  }
  const auto h = get("h");
  const auto q = get("q_weight");
  const auto copies = q.rows();
  const auto stream = to_mat<bf16>(n, h.row_size(), h.f);
  const auto gates = poisoned<float>(n, copies);
  std::vector<int> image;
  for (const auto text : get("mask").i) image.push_back(text == 0);
  engram_apply(Exec(), to_mat<bf16>(n, weight.n, kv), to_mat<bf16>(copies, q.row_size(), q.f),
               to_mat<bf16>(copies, q.row_size(), get("k_weight").f), to_vec<std::uint8_t>(image), {},
               static_cast<float>(file.attribute("engram/layer", "norm_eps")), gates, stream);
  expect_f32_close(to_floats(gates), get("gate"), "engram/layer/gate");
  expect_bf16_close(to_floats(stream), get("out"), "engram/layer/out");
}

TEST(Engram, gate_agrees_with_a_double_loop_at_odd_widths_and_is_zero_in_images) {
  for (const int width : {1, 17, 48}) {
    const int copies = 3;
    const auto h = random_values(static_cast<std::size_t>(2 * copies * width), 1);
    const auto kv = random_values(static_cast<std::size_t>(2 * (copies + 1) * width), 2);
    const auto q = random_values(static_cast<std::size_t>(copies * width), 3);
    const auto k = random_values(static_cast<std::size_t>(copies * width), 4);
    const auto stream = to_mat<bf16>(2, copies * width, h);
    const auto gates = poisoned<float>(2, copies);
    // Call row 0 is step row 2, which is text; row 1 is step row 0, an image row.
    engram_apply(Exec(), to_mat<bf16>(2, (copies + 1) * width, kv), to_mat<bf16>(copies, width, q),
                 to_mat<bf16>(copies, width, k), to_vec<std::uint8_t>(std::vector<int>{1, 1, 0}),
                 to_vec<std::int32_t>(std::vector<int>{2, 0}), 1e-20F, gates, stream);
    const auto got = to_floats(gates);
    for (int j = 0; j < copies; ++j) {
      double dot = 0;
      double hh = 0;
      double kk = 0;
      for (int c = 0; c < width; ++c) {
        const auto at = static_cast<std::size_t>(j * width + c);
        dot += double(h[at]) * double(q[at]) * double(k[at]) * double(kv[at]);
        hh += double(h[at]) * double(h[at]);
        kk += double(kv[at]) * double(kv[at]);
      }
      dot *= std::sqrt(width / hh) * std::sqrt(width / kk) / std::sqrt(width);
      const double want = reference::sigmoid(std::copysign(std::sqrt(std::max(std::fabs(dot), 1e-6)), dot));
      EXPECT_NEAR(got[static_cast<std::size_t>(j)], want, 2e-6);
      EXPECT_EQ(got[static_cast<std::size_t>(copies + j)], 0.0F);
    }
    EXPECT_EQ(slice(to_floats(stream), copies * width, 2 * copies * width),
              slice(h, copies * width, 2 * copies * width));
  }
}

// Ranks combine by OR, so what another rank owns must be zero bits, and a sign must survive.
TEST(Embed, shards_combine_as_bit_patterns_to_the_whole_lookup) {
  std::vector<float> table = random_values(10 * 5, 1);
  table[7 * 5] = -0.0F;
  const auto tokens = to_vec<std::int32_t>(std::vector<int>{7, 0, 9, 3, 7});
  const auto whole = poisoned<bf16>(5, 5);
  embed(Exec(), tokens, to_mat<bf16>(10, 5, table), 0, whole);
  const auto low = poisoned<bf16>(5, 5);
  const auto high = poisoned<bf16>(5, 5);
  embed(Exec(), tokens, to_mat<bf16>(4, 5, slice(table, 0, 20)), 0, low);
  embed(Exec(), tokens, to_mat<bf16>(6, 5, slice(table, 20, 50)), 4, high);
  const auto a = to_host(low);
  const auto b = to_host(high);
  const auto all = to_host(whole);
  for (std::size_t i = 0; i < all.size(); ++i) EXPECT_EQ(a[i].bits | b[i].bits, all[i].bits);
  EXPECT_EQ(all[0].bits, 0x8000);
  EXPECT_EQ(to_floats(whole)[5], table[0]);
}

TEST(Engram, lookups_of_shards_combine_to_the_whole_lookup) {
  const int rows = 8;
  std::vector<int> codes(rows * 32);
  for (std::size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<int>(i * 37 % 256);
  const std::vector<int> scales = {120, 121, 122, 123, 124, 125, 126, 127};
  const auto ids = to_mat<std::int64_t>(2, 3, std::vector<int>{0, 7, 3, 5, 5, 2});
  const auto run = [&](int begin, int end) {
    const auto out = poisoned<bf16>(2, 96);
    engram_lookup(Exec(), ids, to_mat<std::uint8_t>(end - begin, 32, slice(codes, begin * 32, end * 32)),
                  to_mat<std::uint8_t>(end - begin, 1, slice(scales, begin, end)), begin, out);
    return to_host(out);
  };
  const auto whole = run(0, rows);
  const auto a = run(0, 4);
  const auto b = run(4, rows);
  for (std::size_t i = 0; i < whole.size(); ++i) ASSERT_EQ(a[i].bits | b[i].bits, whole[i].bits);
  for (std::size_t c = 0; c < 32; ++c) {
    const float want = numerics::e4m3_value(static_cast<std::uint8_t>(codes[7 * 32 + c]));
    if (!std::isnan(want)) {
      EXPECT_EQ(static_cast<float>(whole[32 + c]), want);
    }
  }
}

TEST(StartStream, copies_the_row_and_points_at_copy_zero) {
  const auto h = poisoned<bf16>(2, 9);
  const auto pre = poisoned<float>(2, 3);
  start_stream(Exec(), to_mat<bf16>(2, 3, std::vector<float>{1, 2, 3, 4, 5, 6}), h, pre);
  EXPECT_EQ(to_floats(h), (std::vector<float>{1, 2, 3, 1, 2, 3, 1, 2, 3, 4, 5, 6, 4, 5, 6, 4, 5, 6}));
  EXPECT_EQ(to_floats(pre), (std::vector<float>{1, 0, 0, 1, 0, 0}));
}

TEST(GatherRows, picks_rows_in_any_order) {
  const auto rows = to_vec<std::int32_t>(std::vector<int>{2, 0, 2});
  const auto out = poisoned<float>(3, 2);
  gather_rows(Exec(), Mat<const float>(to_mat<float>(3, 2, std::vector<float>{1, 2, 3, 4, 5, 6})), rows, out);
  EXPECT_EQ(to_floats(out), (std::vector<float>{5, 6, 1, 2, 5, 6}));
  const auto halves = poisoned<bf16>(3, 1);
  gather_rows(Exec(), Mat<const bf16>(to_mat<bf16>(3, 1, std::vector<float>{1, 2, 3})), rows, halves);
  EXPECT_EQ(to_floats(halves), (std::vector<float>{3, 1, 3}));
}

}  // namespace
}  // namespace bathys::test
