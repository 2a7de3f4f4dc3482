// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling.hpp"

#include "kernels/view_support.hpp"
#include "numerics/philox.hpp"
#include "support/golden.hpp"

#include <limits>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Found {
  std::vector<float> best;
  std::vector<std::int64_t> id;
};
Found run_best(std::int64_t rows, std::int64_t columns, const std::vector<float>& logits, std::int64_t first = 0) {
  const Vec<float> best("test.best", static_cast<std::size_t>(rows));
  const Vec<std::int64_t> id("test.id", static_cast<std::size_t>(rows));
  best_logit(Exec(), to_mat<float>(rows, columns, logits), first, best, id);
  return {to_host(best), to_host(id)};
}

TEST(BestLogit, equals_the_golden_tokens) {
  const GoldenFile file("ops.h5");
  const auto logits = file.array("sampling/argmax/logits");
  EXPECT_EQ(run_best(logits.rows(), logits.row_size(), logits.f).id, file.array("sampling/argmax/token").i);
}

TEST(BestLogit, takes_the_lowest_id_of_equal_logits_and_tells_a_nan) {
  for (const int columns : {1, 15, 16, 17, 40}) {
    EXPECT_EQ(run_best(1, columns, std::vector<float>(static_cast<std::size_t>(columns), -2.0F), 100).id[0], 100);
    std::vector<float> logits(static_cast<std::size_t>(columns), -kInfinity);
    EXPECT_EQ(run_best(1, columns, logits).id[0], 0);
    logits.back() = kNan;
    const Found found = run_best(1, columns, logits);
    EXPECT_EQ(found.id[0], -1);
    EXPECT_TRUE(std::isnan(found.best[0]));
  }
}

TEST(SumExp, is_the_same_however_the_vocabulary_is_cut) {
  const int columns = 3001;
  const auto logits = random_values(2 * columns, 9, 4.0, false);
  const Found found = run_best(2, columns, logits);
  const auto sum_of = [&](int begin, int end) {
    std::vector<float> part;
    for (int q = 0; q < 2; ++q) {
      const auto row = slice(logits, q * columns + begin, q * columns + end);
      part.insert(part.end(), row.begin(), row.end());
    }
    const Vec<std::int64_t> sums("test.sums", 2);
    sum_exp(Exec(), to_mat<float>(2, end - begin, part), to_vec<float>(found.best), sums);
    return to_host(sums);
  };
  const auto whole = sum_of(0, columns);
  for (const int cut : {1, 750, 1024, 2047}) {
    const auto a = sum_of(0, cut);
    const auto b = sum_of(cut, columns);
    EXPECT_EQ(a[0] + b[0], whole[0]);
    EXPECT_EQ(a[1] + b[1], whole[1]);
  }
  for (std::size_t q = 0; q < 2; ++q) {
    double want = 0;
    for (std::size_t c = 0; c < columns; ++c) want += std::exp(double(logits[q * columns + c]) - double(found.best[q]));
    EXPECT_NEAR(double(whole[q]) * 0x1p-44, want, want * 1e-6);
  }
}

TEST(PickLogit, gives_zero_bits_where_another_shard_owns_the_id) {
  const auto logits = to_mat<float>(4, 3, std::vector<float>{-0.0F, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11});
  const Vec<float> out("test.out", 4);
  pick_logit(Exec(), logits, 10, to_vec<std::int64_t>(std::vector<int>{10, 9, 12, -1}), out);
  const auto got = to_host(out);
  EXPECT_TRUE(std::signbit(got[0]));
  EXPECT_EQ(numerics::bits_of_float(got[1]), 0U);
  EXPECT_EQ(got[2], 8.0F);
  EXPECT_EQ(numerics::bits_of_float(got[3]), 0U);
}

struct Drawn {
  std::vector<double> best;
  std::vector<std::int64_t> id;
};
struct Keys {
  std::vector<std::uint64_t> key;
  std::vector<std::int64_t> position;
  std::vector<std::int32_t> repeat;
  std::vector<float> temperature;
};
Drawn run_draw(std::int64_t columns, const std::vector<float>& logits, std::int64_t first, const Keys& keys,
               const std::vector<std::uint32_t>& allowed = {}) {
  const auto rows = static_cast<std::int64_t>(keys.key.size());
  const Vec<double> best("test.best", keys.key.size());
  const Vec<std::int64_t> id("test.id", keys.key.size());
  const DrawKeys views{to_vec<std::uint64_t>(keys.key), to_vec<std::int64_t>(keys.position),
                       to_vec<std::int32_t>(keys.repeat), to_vec<float>(keys.temperature)};
  Mat<const std::uint32_t> mask;
  if (!allowed.empty()) mask = to_mat<std::uint32_t>(rows, (columns + 31) / 32, allowed);
  draw(Exec(), to_mat<float>(rows, columns, logits), first, views, mask, best, id);
  return {to_host(best), to_host(id)};
}
Keys some_keys(int rows, float temperature) {
  Keys keys;
  for (int q = 0; q < rows; ++q) {
    keys.key.push_back(0x9e3779b97f4a7c15ULL * static_cast<std::uint64_t>(q + 1));
    keys.position.push_back((std::int64_t{1} << 33) * (q % 2) + q);
    keys.repeat.push_back(q % 3);
    keys.temperature.push_back(temperature);
  }
  return keys;
}

TEST(Draw, equals_the_plain_loop_over_all_ids) {
  const int rows = 24;
  const int columns = 1003;
  for (const float temperature : {0.3F, 1.0F, 8.0F}) {
    const auto logits = random_values(rows * columns, 3, 4.0, false);
    const Keys keys = some_keys(rows, temperature);
    const Drawn got = run_draw(columns, logits, 0, keys);
    for (std::size_t q = 0; q < rows; ++q) {
      double best = -std::numeric_limits<double>::infinity();
      std::int64_t id = -1;
      for (std::int64_t c = 0; c < columns; ++c) {
        const auto block = numerics::noise_block(keys.key[q], keys.position[q], keys.repeat[q], c / 4);
        const double noise = numerics::gumbel(block.word[c % 4]);
        const double total = double(logits[q * columns + static_cast<std::size_t>(c)] / temperature) + noise;
        if (total > best) {
          best = total;
          id = c;
        }
      }
      EXPECT_EQ(got.id[q], id);
      EXPECT_EQ(got.best[q], best);
    }
  }
}

TEST(Draw, does_not_depend_on_how_the_vocabulary_is_cut) {
  const int columns = 517;
  const auto logits = random_values(columns, 4, 1.0, false);
  const Keys keys = some_keys(1, 1.0F);
  const Drawn whole = run_draw(columns, logits, 0, keys);
  for (const int cut : {1, 2, 3, 130, 255}) {
    const Drawn a = run_draw(cut, slice(logits, 0, cut), 0, keys);
    const Drawn b = run_draw(columns - cut, slice(logits, cut, columns), cut, keys);
    EXPECT_EQ(a.best[0] >= b.best[0] ? a.id[0] : b.id[0], whole.id[0]) << cut;
    EXPECT_EQ(std::max(a.best[0], b.best[0]), whole.best[0]);
  }
}

TEST(Draw, follows_the_softmax) {
  const std::vector<double> p = {0.5, 0.25, 0.125, 0.125};
  const int rows = 20000;
  std::vector<float> logits;
  for (int q = 0; q < rows; ++q) {
    for (const double v : p) logits.push_back(static_cast<float>(std::log(v)));
  }
  std::vector<int> count(4);
  for (const auto id : run_draw(4, logits, 0, some_keys(rows, 1.0F)).id) ++count[static_cast<std::size_t>(id)];
  for (std::size_t c = 0; c < 4; ++c) {
    EXPECT_NEAR(count[c], rows * p[c], 5 * std::sqrt(rows * p[c] * (1 - p[c])));  // five standard deviations
  }
}

TEST(Draw, is_greedy_at_temperature_zero_and_keeps_to_the_allowed_columns) {
  std::vector<float> logits(70, 1.0F);
  logits[40] = 3.0F;
  logits[65] = 2.0F;
  const Keys keys = some_keys(1, 0.0F);
  EXPECT_EQ(run_draw(70, logits, 1000, keys).id[0], 1040);
  EXPECT_EQ(run_draw(70, logits, 1000, keys).best[0], 3.0);
  EXPECT_EQ(run_draw(70, logits, 1000, keys, {~0U, ~(1U << 8), ~0U}).id[0], 1065);
  EXPECT_EQ(run_draw(70, logits, 1000, keys, {0, 0, 0}).id[0], -1);
  EXPECT_EQ(run_draw(70, logits, 1000, some_keys(1, 5.0F), {0, 0, 1U << 3}).id[0], 1067);
}

TEST(Draw, survives_infinities_and_tells_a_nan) {
  std::vector<float> logits(20, -kInfinity);
  logits[7] = 0.5F;
  EXPECT_EQ(run_draw(20, logits, 0, some_keys(1, 1.0F)).id[0], 7);
  EXPECT_EQ(run_draw(20, logits, 0, some_keys(1, 1e-30F)).id[0], 7);
  logits[9] = kNan;
  for (const float temperature : {0.0F, 1.0F}) {
    const Drawn got = run_draw(20, logits, 0, some_keys(1, temperature));
    EXPECT_EQ(got.id[0], -1);
    EXPECT_TRUE(std::isnan(got.best[0]));
  }
}

}  // namespace
}  // namespace bathys::test
