// SPDX-License-Identifier: Apache-2.0
#include "kernels/compressor.hpp"

#include "kernels/indexer.hpp"
#include "kernels/norm_rope.hpp"
#include "kernels/sequences.hpp"
#include "reference/linear.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <cstring>
#include <numeric>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

// A weight that was stored as float32 of exact bf16 values.
reference::Weight plain_weight(const GoldenArray& w, WeightKind kind) {
  reference::Weight out{kind, w.rows(), w.row_size(), {}, {}};
  for (const float v : w.f) {
    const std::uint32_t bits = numerics::bits_of_float(v);
    for (int byte = kind == WeightKind::f32 ? 0 : 2; byte < 4; ++byte)
      out.codes.push_back(static_cast<std::uint8_t>(bits >> (8 * byte)));
  }
  return out;
}
std::vector<float> apply(const reference::Weight& w, const std::vector<float>& x, bool q8, bool round) {
  std::vector<float> y;
  for (std::int64_t first = 0; first < static_cast<std::int64_t>(x.size()); first += w.k) {
    const auto row = slice(x, first, first + w.k);
    const auto prepared = q8 ? reference::q8_row(row) : reference::plain_row(row);
    for (std::int64_t n = 0; n < w.n; ++n) {
      const float v = reference::linear(w, n, prepared);
      y.push_back(round ? numerics::round_to_bf16(v) : v);
    }
  }
  return y;
}

class CompressorGolden : public testing::TestWithParam<int> {
 protected:
  CompressorGolden() : file_("ops.h5"), group_("compressor/ratio" + std::to_string(GetParam())) {}
  [[nodiscard]] GoldenArray get(const char* name) const { return file_.array(group_ + "/" + name); }
  [[nodiscard]] int number(const char* name) const { return static_cast<int>(file_.attribute(group_, name)); }

  [[nodiscard]] Mat<bf16> norm(const std::vector<float>& x, const char* gain) const {
    const auto g = get(gain);
    const auto rows = static_cast<std::int64_t>(x.size()) / g.size();
    const auto v = to_mat<bf16>(rows, g.size(), x);
    rms_norm(Exec(), v, to_vec<bf16>(g.f), 1e-20F, v);
    return v;
  }
  // Rotates rows at positions 0, step, 2 step ..
  void rotate(const Mat<bf16>& x, int heads, int step) const {
    RopeSettings s;
    s.rope_dim = number("rope_head_dim");
    s.theta = file_.attribute(group_, "theta");
    s.original_seq_len = number("original_seq_len");
    s.factor = number("factor");
    s.beta_fast = number("beta_fast");
    s.beta_slow = number("beta_slow");
    const auto freqs = rope_frequencies(s);
    std::vector<std::int64_t> positions;
    for (std::size_t i = 0; i < x.extent(0); ++i) positions.push_back(static_cast<std::int64_t>(i) * step);
    const Cube<float> table("test.table", positions.size(), freqs.size(), 2);
    rope_table(Exec(), to_vec<std::int64_t>(positions), to_vec<float>(freqs), table);
    rope_rotate(Exec(), x, heads, static_cast<int>(x.extent(1)) / heads, {}, table, false);
  }

  GoldenFile file_;
  std::string group_;
};

TEST_P(CompressorGolden, latents_keys_scores_candidates_and_choice_equal_the_golden_ones) {
  const int ratio = number("ratio");
  const auto x = get("x");
  const std::int64_t n = x.rows();
  const auto latent_want = get("latent");
  const std::int64_t groups = latent_want.rows();
  const std::int64_t d = latent_want.row_size();
  const int id = number("index_head_dim");
  const int heads = number("index_n_heads");
  Sequences sequences(1, 4096, 1, page_bytes(static_cast<int>(d), id));
  const auto step = sequences.step({0}, {static_cast<std::int32_t>(n)});
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(groups));
  std::iota(numbers.begin(), numbers.end(), 0);
  const StepGroups list{to_vec<std::int32_t>(std::vector<int>(numbers.size(), 0)), to_vec<std::int64_t>(numbers)};

  // Latent.
  std::vector<float> pooled;
  if (ratio == 1) {
    pooled = apply(plain_weight(get("wkv"), WeightKind::bf16), x.f, false, true);
  } else {
    const auto kv = apply(plain_weight(get("wkv"), WeightKind::f32), x.f, false, false);
    const auto gate = apply(plain_weight(get("wgate"), WeightKind::f32), x.f, false, false);
    const auto out = poisoned<bf16>(groups, d);
    compress_pool(Exec(), to_mat<float>(n, d, kv), to_mat<float>(n, d, gate), ratio, step.sequences, list, 0, out);
    pooled = to_floats(out);
  }
  const auto latent = norm(pooled, "norm");
  expect_bf16_close(to_floats(latent), latent_want, group_ + "/latent");

  // Caches, from the golden latent.
  const auto key = norm(apply(plain_weight(get("wk"), WeightKind::bf16), latent_want.f, false, true), "k_norm");
  rotate(key, 1, ratio);
  const auto rotated = to_mat<bf16>(groups, d, latent_want.f);
  rotate(rotated, 1, ratio);
  const auto pages = sequences.pages();
  store_groups(Exec(), rotated, key, list, pages);
  const auto kv_read = poisoned<bf16>(groups, d);
  const auto key_read = poisoned<bf16>(groups, id);
  read_groups(Exec(), pages, 0, groups, kv_read, key_read);
  expect_bf16_close(to_floats(kv_read), get("compress_kv"), group_ + "/compress_kv");
  expect_bf16_close(to_floats(key_read), get("index_k"), group_ + "/index_k");

  // Queries, scores and choice.
  const auto wq = get("wq_b");
  const reference::Weight wq_b{WeightKind::fp8, wq.rows(), wq.row_size(), wq.bytes(), get("wq_b_scale").bytes()};
  const auto q = to_mat<bf16>(n, std::int64_t{heads} * id, apply(wq_b, get("qr").f, true, true));
  rotate(q, heads, 1);
  quantize_q4x32_in_place(Exec(), q);
  expect_bf16_close(to_floats(q), get("index_q"), group_ + "/index_q");
  store_groups(Exec(), rotated, to_mat<bf16>(groups, id, get("index_k").f), list, pages);
  IndexQueries in{to_mat<bf16>(n, std::int64_t{heads} * id, get("index_q").f),
                  to_mat<bf16>(n, heads, apply(plain_weight(get("weights_proj"), WeightKind::bf16), x.f, false, true)),
                  {},
                  step.rows,
                  pages,
                  heads,
                  id,
                  static_cast<int>(d),
                  ratio};
  const auto scores = to_mat<float>(n, groups, std::vector<float>(static_cast<std::size_t>(n * groups), -INFINITY));
  index_scores(Exec(), in, 0, scores);
  const auto score_want = get("index_score");
  const auto score_got = to_floats(scores);
  double square = 0;
  int reachable = 0;
  for (const float v : score_want.f) {
    if (std::isfinite(v)) {
      square += double(v) * double(v);
      ++reachable;
    }
  }
  const double rms = std::sqrt(square / reachable);
  for (std::size_t i = 0; i < score_got.size(); ++i) {
    if (!std::isfinite(score_want.f[i])) {
      EXPECT_EQ(score_got[i], score_want.f[i]) << i;  // both unreachable
    } else {
      EXPECT_NEAR(score_got[i], score_want.f[i], std::max(1e-5 * rms, 1e-4 * std::fabs(score_want.f[i]))) << i;
    }
  }
  const auto chosen = poisoned<std::int32_t>(n, number("index_topk"));
  const auto blocks = poisoned<std::int32_t>(n, number("candidate_topk_blocks"));
  select_groups(Exec(), in, 0, scores, chosen);
  select_candidate_blocks(Exec(), in, 0, scores, number("candidate_block_size"), blocks);
  const auto chosen_got = to_host(chosen);
  EXPECT_EQ(std::vector<std::int64_t>(chosen_got.begin(), chosen_got.end()), get("groups").i);
  const auto kept = to_host(blocks);
  std::vector<std::int64_t> mask(static_cast<std::size_t>(n * groups));
  for (std::int64_t t = 0; t < n; ++t) {
    for (int c = 0; c < number("candidate_topk_blocks"); ++c) {
      const std::int64_t b = kept[static_cast<std::size_t>(t * number("candidate_topk_blocks") + c)];
      const std::int64_t end = std::min<std::int64_t>((b + 1) * number("candidate_block_size"), (t + 1) / ratio);
      for (std::int64_t j = b * number("candidate_block_size"); b >= 0 && j < end; ++j)
        mask[static_cast<std::size_t>(t * groups + j)] = 1;
    }
  }
  EXPECT_EQ(mask, get("candidates").i);
}

INSTANTIATE_TEST_SUITE_P(All, CompressorGolden, testing::Values(1, 2, 4),
                         [](const auto& tested) { return "ratio" + std::to_string(tested.param); });

// Pools a sequence's groups in steps of the given lengths, next to another sequence of the same data one row ahead.
std::vector<std::vector<float>> pool_in_chunks(int ratio, int length, int chunk, int d) {
  const auto n = static_cast<std::size_t>(length * d);
  const auto kv = random_values(n, 1, 1.0, false);
  const auto gate = random_values(n, 2, 2.0, false);
  const std::int64_t open_offset = 16;
  const Sequences sequences(2, open_offset + std::int64_t{ratio} * 2 * d * 4, 0, 8);
  std::vector<std::vector<float>> out(2);
  std::vector<std::int64_t> first = {0, 0};
  while (first[1] < length) {
    std::vector<std::int32_t> rows;
    for (int b = 0; b < 2; ++b) {
      const int wanted = first[1] == 0 && b == 0 ? chunk + 1 : chunk;  // sequence 0 runs one row ahead
      rows.push_back(
          static_cast<std::int32_t>(std::min<std::int64_t>(wanted, length - first[static_cast<std::size_t>(b)])));
    }
    const auto step = sequences.step(first, rows);
    std::vector<float> step_kv;
    std::vector<float> step_gate;
    std::vector<std::int32_t> sequence;
    std::vector<std::int64_t> group;
    for (std::size_t b = 0; b < 2; ++b) {
      for (std::int64_t i = first[b] * d; i < (first[b] + rows[b]) * d; ++i) {
        step_kv.push_back(kv[static_cast<std::size_t>(i)]);
        step_gate.push_back(gate[static_cast<std::size_t>(i)]);
      }
      for (std::int64_t j = first[b] / ratio; j < (first[b] + rows[b]) / ratio; ++j) {
        sequence.push_back(static_cast<std::int32_t>(b));
        group.push_back(j);
      }
      first[b] += rows[b];
    }
    const auto kv_view = to_mat<float>(step.n_rows, d, step_kv);
    const auto gate_view = to_mat<float>(step.n_rows, d, step_gate);
    const auto pooled = poisoned<bf16>(static_cast<std::int64_t>(group.size()), d);
    compress_pool(Exec(), kv_view, gate_view, ratio, step.sequences,
                  {to_vec<std::int32_t>(sequence), to_vec<std::int64_t>(group)}, open_offset, pooled);
    compress_keep_open(Exec(), kv_view, gate_view, ratio, step.sequences, open_offset);
    const auto values = to_floats(pooled);
    for (std::size_t g = 0; g < group.size(); ++g) {
      auto& mine = out[static_cast<std::size_t>(sequence[g])];
      const auto row = slice(values, static_cast<std::int64_t>(g) * d, static_cast<std::int64_t>(g + 1) * d);
      mine.insert(mine.end(), row.begin(), row.end());
    }
  }
  return out;
}

TEST(CompressPool, loses_no_remainder_between_calls_of_any_length) {
  const int d = 32;
  for (const int ratio : {2, 3, 4}) {
    for (int length = 1; length <= 9; ++length) {
      const auto kv = random_values(static_cast<std::size_t>(length * d), 1, 1.0, false);
      const auto gate = random_values(static_cast<std::size_t>(length * d), 2, 2.0, false);
      const auto whole = pool_in_chunks(ratio, length, length, d)[1];
      ASSERT_EQ(whole.size(), static_cast<std::size_t>(length / ratio * d));
      for (int j = 0; j < length / ratio; ++j) {
        std::vector<reference::Doubles> members;
        std::vector<reference::Doubles> gates;
        for (int t = j * ratio; t < (j + 1) * ratio; ++t) {
          const auto k = slice(kv, t * d, (t + 1) * d);
          const auto g = slice(gate, t * d, (t + 1) * d);
          members.emplace_back(k.begin(), k.end());
          gates.emplace_back(g.begin(), g.end());
        }
        const auto want = reference::pool(members, gates);
        for (std::size_t c = 0; c < d; ++c) {
          EXPECT_NEAR(whole[static_cast<std::size_t>(j * d) + c], want[c], std::fabs(want[c]) * 0x1.02p-8 + 1e-6);
        }
      }
      for (const int chunk : {1, 2, 3, 5}) {
        for (const auto& got : pool_in_chunks(ratio, length, chunk, d))
          EXPECT_EQ(got, whole) << ratio << " " << length << " " << chunk;
      }
    }
  }
}

TEST(StoreGroups, keeps_the_quantized_values_and_never_touches_a_neighbour) {
  const int d = 64;
  const int id = 32;
  const std::int64_t n = 130;  // three pages, the last barely begun
  const Sequences sequences(2, 8, 3, page_bytes(d, id));
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(n));
  std::iota(numbers.begin(), numbers.end(), 0);
  const auto latent = random_values(static_cast<std::size_t>(n * d), 1);
  const auto key = random_values(static_cast<std::size_t>(n * id), 2);
  const auto store = [&](int b, const std::vector<std::int64_t>& list) {
    std::vector<float> l;
    std::vector<float> k;
    for (const auto j : list) {
      const auto a = slice(latent, j * d, (j + 1) * d);
      const auto c = slice(key, j * id, (j + 1) * id);
      l.insert(l.end(), a.begin(), a.end());
      k.insert(k.end(), c.begin(), c.end());
    }
    const auto count = static_cast<std::int64_t>(list.size());
    store_groups(Exec(), to_mat<bf16>(count, d, l), to_mat<bf16>(count, id, k),
                 {to_vec<std::int32_t>(std::vector<int>(list.size(), b)), to_vec<std::int64_t>(list)},
                 sequences.pages());
  };
  store(0, numbers);
  for (const auto j : numbers) store(1, {j});  // one at a time
  const auto read = [&](int b) {
    const auto l = poisoned<bf16>(n, d);
    const auto k = poisoned<bf16>(n, id);
    read_groups(Exec(), sequences.pages(), b, n, l, k);
    return std::make_pair(to_floats(l), to_floats(k));
  };
  const auto [l, k] = read(0);
  EXPECT_EQ(read(1), std::make_pair(l, k));
  for (std::size_t first = 0; first < l.size(); first += 16) {
    std::uint8_t codes[16];
    const float s = numerics::e4m3_value(
        numerics::quantize_q4x16([&](int i) { return latent[first + std::size_t(i)]; }, 16, codes));
    for (std::size_t i = 0; i < 16; ++i) ASSERT_EQ(l[first + i], numerics::e2m1_value(codes[i]) * s);
  }
  for (std::size_t first = 0; first < k.size(); first += 32) {
    std::uint8_t codes[32];
    const float s =
        numerics::e8m0_value(numerics::quantize_q4x32([&](int i) { return key[first + std::size_t(i)]; }, 32, codes));
    for (std::size_t i = 0; i < 32; ++i) ASSERT_EQ(k[first + i], numerics::e2m1_value(codes[i]) * s);
  }
}

}  // namespace
}  // namespace bathys::test
