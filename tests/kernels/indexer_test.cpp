// SPDX-License-Identifier: Apache-2.0
#include "kernels/indexer.hpp"

#include "kernels/compressor.hpp"
#include "kernels/sequences.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::int32_t> top(const std::vector<float>& scores, int k) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(k), -7);
  select_topk_row(scores.data(), static_cast<std::int64_t>(scores.size()), k, out.data());
  return out;
}
std::vector<std::int32_t> blocks_of(const std::vector<float>& scores, int block, int k) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(k), -7);
  select_blocks_row(scores.data(), static_cast<std::int64_t>(scores.size()), block, k, out.data());
  return out;
}

TEST(SelectTopk, equals_the_golden_choice) {
  const GoldenFile file("ops.h5");
  const auto scores = file.array("select/topk/scores");
  const auto len = file.array("select/topk/len");
  const auto want = file.array("select/topk/indices");
  const auto k = static_cast<int>(file.attribute("select/topk", "topk"));
  for (std::int64_t i = 0; i < scores.rows(); ++i) {
    const auto row = slice(scores.f, i * scores.row_size(), i * scores.row_size() + len.i[static_cast<std::size_t>(i)]);
    const auto got = top(row, k);
    EXPECT_EQ(std::vector<std::int64_t>(got.begin(), got.end()), slice(want.i, i * k, (i + 1) * k)) << "row " << i;
  }
}

class CandidatesGolden : public testing::TestWithParam<std::string> {};

TEST_P(CandidatesGolden, keep_the_golden_blocks) {
  const GoldenFile file("ops.h5");
  const std::string group = "select/" + GetParam();
  const auto scores = file.array(group + "/scores");
  const auto len = file.array(group + "/len");
  const auto mask = file.array(group + "/mask");
  const auto block = static_cast<int>(file.attribute(group, "block"));
  const auto k = static_cast<int>(file.attribute(group, "topk_blocks"));
  for (std::int64_t i = 0; i < scores.rows(); ++i) {
    const auto n = static_cast<std::int32_t>(len.i[static_cast<std::size_t>(i)]);
    std::vector<std::int64_t> got(static_cast<std::size_t>(scores.row_size()));
    for (const std::int32_t b :
         blocks_of(slice(scores.f, i * scores.row_size(), i * scores.row_size() + n), block, k)) {
      for (std::int32_t j = b * block; b >= 0 && j < std::min(n, (b + 1) * block); ++j)
        got[static_cast<std::size_t>(j)] = 1;
    }
    EXPECT_EQ(got, slice(mask.i, i * scores.row_size(), (i + 1) * scores.row_size())) << "row " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CandidatesGolden,
                         testing::Values("candidates_b3_k5", "candidates_b4_k2", "candidates_b8_k3",
                                         "candidates_b8_k4"),
                         [](const auto& tested) { return tested.param; });

TEST(SelectTopk, equals_a_full_sort_around_the_number_kept) {
  for (const int n : {0, 1, 2, 511, 512, 513, 1000, 4099}) {
    for (const unsigned seed : {1U, 2U}) {
      auto scores = random_values(static_cast<std::size_t>(n), seed, 3.0, seed == 2);  // rounded ones repeat
      EXPECT_EQ(top(scores, 512), reference::top_k(scores, 512)) << n;
      EXPECT_EQ(top(scores, 1), reference::top_k(scores, 1)) << n;
    }
  }
}

TEST(SelectTopk, takes_the_lowest_indices_when_all_scores_are_equal) {
  for (const float value : {0.0F, -3.5F, -kInfinity, kInfinity, 1e-42F}) {
    const std::vector<float> scores(513, value);
    EXPECT_EQ(top(scores, 512), reference::top_k(scores, 512)) << value;
  }
  // Minus zero is no worse than zero.
  EXPECT_EQ(top({-0.0F, 0.0F, -0.0F}, 2), (std::vector<std::int32_t>{0, 1}));
}

TEST(SelectTopk, ranks_no_numbers_below_every_number_and_still_fills_up_with_them) {
  EXPECT_EQ(top({kNan, -kInfinity, kNan, -1}, 2), (std::vector<std::int32_t>{1, 3}));
  EXPECT_EQ(top({kNan, -kInfinity, kNan, -1}, 3), (std::vector<std::int32_t>{0, 1, 3}));
  EXPECT_EQ(top({-kInfinity, -kInfinity}, 4), (std::vector<std::int32_t>{0, 1, -1, -1}));
}

TEST(SelectBlocks, keeps_the_newest_block_whatever_its_score_and_counts_it) {
  for (int partial = 1; partial <= 8; ++partial) {
    std::vector<float> scores = random_values(static_cast<std::size_t>(40 + partial), 5, 1.0, false);
    for (int i = 0; i < partial; ++i) scores[static_cast<std::size_t>(40 + i)] = -1e30F;
    for (const int k : {1, 2, 4, 6, 9}) {
      EXPECT_EQ(blocks_of(scores, 8, k), reference::best_blocks(scores, 8, k)) << partial << " " << k;
    }
    EXPECT_EQ(blocks_of(scores, 8, 1)[0], 5);
  }
  EXPECT_EQ(blocks_of({}, 8, 2), (std::vector<std::int32_t>{-1, -1}));
  EXPECT_EQ(blocks_of(std::vector<float>(24, 1.0F), 8, 2), (std::vector<std::int32_t>{0, 2}));  // ties: the lower block
  // A block without any finite score is not kept.
  std::vector<float> scores(24, -kInfinity);
  scores[3] = 1.0F;
  EXPECT_EQ(blocks_of(scores, 8, 3), (std::vector<std::int32_t>{0, 2, -1}));
}

TEST(QuantizeQ4x32, in_place_equals_the_golden_values) {
  const GoldenFile file("ops.h5");
  const auto x = file.array("quant/q4x32/x");
  const auto v = to_mat<bf16>(x.rows(), x.row_size(), x.f);
  quantize_q4x32_in_place(Exec(), v);
  EXPECT_EQ(to_floats(v), file.array("quant/q4x32/inplace").f);
}

// One sequence (after an empty one) with `groups` stored groups of random keys, and one query at each of some
// positions.
struct Scene {
  int heads, id, d, ratio;
  std::int64_t groups;
  Sequences sequences;
  std::vector<float> keys;  // decoded [groups, id]
  SourcePages pages;

  Scene(int heads_, int id_, int ratio_, std::int64_t groups_)
      : heads(heads_),
        id(id_),
        d(32),
        ratio(ratio_),
        groups(groups_),
        sequences(2, 16, static_cast<int>(groups_ / kGroupsPerPage + 1), page_bytes(32, id_)),
        pages(sequences.pages()) {
    std::vector<std::int64_t> j(static_cast<std::size_t>(groups));
    std::iota(j.begin(), j.end(), 0);
    const StepGroups list{to_vec<std::int32_t>(std::vector<int>(j.size(), 1)), to_vec<std::int64_t>(j)};
    store_groups(Exec(), to_mat<bf16>(groups, d, random_values(j.size() * 32, 1)),
                 to_mat<bf16>(groups, id, random_values(j.size() * static_cast<std::size_t>(id), 2)), list, pages);
    const auto latent = poisoned<bf16>(groups, d);
    const auto key = poisoned<bf16>(groups, id);
    read_groups(Exec(), pages, 1, groups, latent, key);
    keys = to_floats(key);
  }

  // Queries at consecutive positions first .. first + n - 1 of sequence 1.
  [[nodiscard]] IndexQueries queries(std::int64_t first, int n) const {
    const auto step = sequences.step({0, first}, {0, n});
    const auto q = to_mat<bf16>(n, heads * id, random_values(static_cast<std::size_t>(n * heads * id), 3));
    quantize_q4x32_in_place(Exec(), q);
    return {q,     to_mat<bf16>(n, heads, random_values(static_cast<std::size_t>(n * heads), 4)),
            {},    step.rows,
            pages, heads,
            id,    d,
            ratio};
  }
};

TEST(IndexScores, agree_with_a_double_loop_and_leave_unreachable_columns_alone) {
  for (const int heads : {1, 3, 4, 17}) {
    const Scene scene(heads, 64, 2, 150);
    const int n = 5;
    const IndexQueries in = scene.queries(295, n);  // reachable: 148, 148, 149, 149, 150
    const auto scores = to_mat<float>(n, 160, std::vector<float>(n * 160, 77.0F));
    index_scores(Exec(), in, 0, scores);
    const auto got = to_floats(scores);
    const auto q = to_floats(in.q);
    const auto w = to_floats(in.weight);
    for (std::size_t t = 0; t < n; ++t) {
      for (std::size_t j = 0; j < 160; ++j) {
        if (j >= (295 + t + 1) / 2) {
          EXPECT_EQ(got[t * 160 + j], 77.0F);
          continue;
        }
        double want = 0;
        double size = 0;
        for (std::size_t h = 0; h < static_cast<std::size_t>(heads); ++h) {
          double dot = 0;
          for (std::size_t c = 0; c < 64; ++c) {
            dot += double(q[(t * static_cast<std::size_t>(heads) + h) * 64 + c]) * double(scene.keys[j * 64 + c]);
          }
          const double term =
              std::max(dot, 0.0) * double(w[t * static_cast<std::size_t>(heads) + h]) / 8.0 / std::sqrt(double(heads));
          want += term;
          size += std::fabs(term);
        }
        EXPECT_NEAR(got[t * 160 + j], want, 2e-6 * size + 1e-6);
      }
    }
  }
}

TEST(IndexScores, do_not_depend_on_the_rows_scored_together) {
  const Scene scene(4, 64, 1, 70);
  const IndexQueries in = scene.queries(60, 7);
  const auto whole = poisoned<float>(7, 70);
  index_scores(Exec(), in, 0, whole);
  const auto part = poisoned<float>(2, 70);
  index_scores(Exec(), in, 4, part);
  EXPECT_EQ(slice(to_floats(part), 0, 64), slice(to_floats(whole), 4 * 70, 4 * 70 + 64));
}

TEST(IndexScores, of_candidates_are_the_scores_of_their_groups_and_choose_the_same_groups) {
  const Scene scene(4, 64, 1, 150);
  const int n = 6;
  const int block = 8;
  const int k = 12;
  const IndexQueries in = scene.queries(131, n);  // newest block holds 4, 5, 6, 7, 8 and 1 groups
  const auto full = poisoned<float>(n, 150);
  index_scores(Exec(), in, 0, full);
  const auto blocks = poisoned<std::int32_t>(n, 5);
  select_candidate_blocks(Exec(), in, 0, full, block, blocks);
  const auto scores = poisoned<float>(n, 5 * block);
  index_scores_of_candidates(Exec(), in, 0, blocks, block, scores);
  const auto chosen = poisoned<std::int32_t>(n, k);
  select_groups_of_candidates(Exec(), in, 0, scores, blocks, block, chosen);
  const auto all = to_floats(full);
  const auto some = to_floats(scores);
  const auto kept = to_host(blocks);
  const auto got = to_host(chosen);
  for (std::int32_t t = 0; t < n; ++t) {
    const std::int32_t reachable = 132 + t;
    std::vector<float> masked(static_cast<std::size_t>(reachable), -kInfinity);
    for (std::int32_t c = 0; c < 5; ++c) {
      const std::int32_t b = kept[static_cast<std::size_t>(t * 5 + c)];
      ASSERT_GE(b, 0);
      for (std::int32_t o = 0; o < block; ++o) {
        const std::int32_t j = b * block + o;
        const float s = some[static_cast<std::size_t>((t * 5 + c) * block + o)];
        if (j >= reachable) {
          EXPECT_EQ(s, -kInfinity);
        } else {
          EXPECT_EQ(s, all[static_cast<std::size_t>(t * 150 + j)]);
          masked[static_cast<std::size_t>(j)] = s;
        }
      }
    }
    EXPECT_EQ(slice(got, t * k, (t + 1) * k), reference::top_k(masked, k)) << t;
  }
}

// Padding is told from a legal score by where it stands: scores below everything must still be chosen, and nothing
// else.
TEST(SelectGroups, never_takes_a_padding_column) {
  const Scene scene(1, 32, 1, 40);
  const IndexQueries in = scene.queries(9, 1);  // 10 reachable groups
  std::vector<float> scores(32, 5.0F);
  for (std::size_t j = 0; j < 10; ++j) scores[j] = -kInfinity;
  const auto chosen = poisoned<std::int32_t>(1, 12);
  select_groups(Exec(), in, 0, to_mat<float>(1, 32, scores), chosen);
  EXPECT_EQ(to_host(chosen), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1}));
  // Two candidate blocks of 8, the newer with 2 reachable members; a third place is empty.
  select_groups_of_candidates(Exec(), in, 0, to_mat<float>(1, 24, std::vector<float>(24, kInfinity)),
                              to_mat<std::int32_t>(1, 3, std::vector<int>{0, 1, -1}), 8, chosen);
  EXPECT_EQ(to_host(chosen), (std::vector<std::int32_t>{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, -1, -1}));
}

}  // namespace
}  // namespace bathys::test
