// SPDX-License-Identifier: Apache-2.0
#include "kernels/indexer.hpp"

#include "kernels/attention_inline.hpp"
#include "kernels/launch.hpp"
#include "kernels/records.hpp"

#include <cmath>

namespace bathys::kernels {

void quantize_q4x32_in_place(const Exec& exec, const Mat<bf16>& x) {
  const int groups = columns_in(x) / 32;
  check_multiple("quantize_q4x32_in_place", "columns of x", columns_in(x), 32);
  for_each(
      exec, "bathys.quantize_q4x32", rows_in(x), KOKKOS_LAMBDA(const std::int64_t i) {
        std::uint8_t codes[32];
        for (int g = 0; g < groups; ++g) {
          bf16* v = row_of(x, i) + 32 * g;
          const float scale = numerics::e8m0_value(
              numerics::quantize_q4x32([=](int c) { return static_cast<float>(v[c]); }, 32, codes));
          for (int c = 0; c < 32; ++c) v[c] = bf16(numerics::e2m1_value(codes[c]) * scale);
        }
      });
}

namespace {

BATHYS_FUNCTION std::int64_t reachable_groups(std::int64_t position, int ratio) { return (position + 1) / ratio; }

// Which group a score column stands for.
struct EveryGroup {
  BATHYS_FUNCTION std::int64_t columns(std::int64_t, std::int64_t reachable) const { return reachable; }
  BATHYS_FUNCTION std::int64_t group(std::int64_t, std::int64_t column) const { return column; }
};
struct CandidateGroups {
  Mat<const std::int32_t> blocks;
  int block = 1;
  BATHYS_FUNCTION std::int64_t columns(std::int64_t, std::int64_t) const {
    return static_cast<std::int64_t>(blocks.extent(1)) * block;
  }
  BATHYS_FUNCTION std::int64_t group(std::int64_t t, std::int64_t column) const {
    const std::int32_t b = row_of(blocks, t)[column / block];
    return b < 0 ? -1 : std::int64_t{b} * block + column % block;
  }
  // Blocks ascend and only the newest can be partial, so the reachable columns are the leading ones.
  BATHYS_FUNCTION std::int64_t reachable_columns(std::int64_t t, std::int64_t reachable) const {
    std::int64_t n = 0;
    const std::int32_t* b = row_of(blocks, t);
    for (std::size_t c = 0; c < blocks.extent(1) && b[c] >= 0; ++c) {
      const std::int64_t left = reachable - std::int64_t{b[c]} * block;
      n += left < 0 ? 0 : left < block ? left : block;
    }
    return n;
  }
};

inline constexpr int kColumnsPerItem = 64;

// Scores of 64 columns of one query.
template <class Columns>
struct ScoreColumns {
  IndexQueries in;
  Columns columns;
  Mat<float> scores;
  std::int64_t row0 = 0;
  std::int64_t items = 0;  // work items of a row
  float weight_scale = 0;

  // Scratch in floats: q, head weights, a tile of keys, its dots.
  BATHYS_FUNCTION static std::int64_t scratch(int heads, int index_head_dim) {
    return std::int64_t{heads} * index_head_dim + heads + std::int64_t{kKeyTile} * index_head_dim +
           std::int64_t{kKeyTile} * heads;
  }

  template <class Member>
  KOKKOS_INLINE_FUNCTION void operator()(const Member& member) const {
    const std::int64_t s = member.league_rank() / items;
    const std::int64_t first = member.league_rank() % items * kColumnsPerItem;
    const std::int64_t i = row0 + s;
    const std::int64_t t = step_row(in.rows, i);
    const std::int64_t reachable = reachable_groups(in.step_rows.position(t), in.ratio);
    std::int64_t end = columns.columns(t, reachable);
    end = first + kColumnsPerItem < end ? first + kColumnsPerItem : end;
    if (first >= end) return;

    const TeamThreads<Member> threads{member};
    const int heads = in.heads;
    const int d = in.index_head_dim;
    float* q = team_scratch(member, scratch(heads, d));
    float* weight = q + heads * d;
    float* tile = weight + heads;
    float* dots = tile + kKeyTile * d;  // [key][head]
    const ScoreColumns& self = *this;
    threads.each(heads, [&](int head) {
      weight[head] = static_cast<float>(row_of(self.in.weight, i)[head]) * self.weight_scale;
      for (int c = 0; c < d; c += kLanes)
        store_lanes(q + head * d + c, load_lanes(row_of(self.in.q, i) + head * d + c));
    });
    for (std::int64_t column = first; column < end; column += kKeyTile) {
      const int count = end - column < kKeyTile ? static_cast<int>(end - column) : kKeyTile;
      threads.wait();
      threads.each(count, [&](int k) { self.decode(t, column + k, reachable, tile + k * d); });
      threads.wait();
      const int pairs = (count + 1) / 2;
      threads.each((heads + 1) / 2 * pairs,
                   [&](int item) { self.dot_pair(q, tile, dots, item / pairs * 2, item % pairs * 2, count); });
      threads.wait();
      threads.each(count, [&](int k) { self.score(s, t, column + k, reachable, weight, dots + k * heads); });
    }
  }

  BATHYS_FUNCTION bool valid(std::int64_t group, std::int64_t reachable) const {
    return group >= 0 && group < reachable;
  }

  BATHYS_FUNCTION void decode(std::int64_t t, std::int64_t column, std::int64_t reachable, float* key) const {
    const std::int64_t group = columns.group(t, column);
    if (valid(group, reachable)) {
      decode_key(key_record(in.pages, in.step_rows.sequence(t), group, in.head_dim, in.index_head_dim),
                 in.index_head_dim, key);
    } else {
      for (int c = 0; c < in.index_head_dim; ++c) key[c] = 0;
    }
  }

  template <int kA, int kB>
  BATHYS_FUNCTION void dot_block(const float* q, const float* tile, float* dots, int head, int key) const {
    const int d = in.index_head_dim;
    float block[kA][kB];
    dot_tile<kA, kB>(q + head * d, d, tile + key * d, d, d, block);
    for (int i = 0; i < kA; ++i) {
      for (int j = 0; j < kB; ++j) dots[(key + j) * in.heads + head + i] = block[i][j];
    }
  }
  BATHYS_FUNCTION void dot_pair(const float* q, const float* tile, float* dots, int head, int key, int count) const {
    const bool both_heads = head + 2 <= in.heads;
    const bool both_keys = key + 2 <= count;
    if (both_heads && both_keys) {
      dot_block<2, 2>(q, tile, dots, head, key);
    } else if (both_heads) {
      dot_block<2, 1>(q, tile, dots, head, key);
    } else if (both_keys) {
      dot_block<1, 2>(q, tile, dots, head, key);
    } else {
      dot_block<1, 1>(q, tile, dots, head, key);
    }
  }

  BATHYS_FUNCTION void score(std::int64_t s, std::int64_t t, std::int64_t column, std::int64_t reachable,
                             const float* weight, const float* dots) const {
    float sum = numerics::float_of_bits(0xff800000U);
    if (valid(columns.group(t, column), reachable)) {
      sum = numerics::sum16(in.heads, [=](std::int64_t h) { return (dots[h] < 0.0F ? 0.0F : dots[h]) * weight[h]; });
    }
    row_of(scores, s)[column] = sum;
  }
};

void check_queries(const char* kernel, const IndexQueries& in, std::int64_t row0, std::int64_t n) {
  check_multiple(kernel, "index_head_dim", in.index_head_dim, 32);
  check_extent(kernel, "columns of q", columns_in(in.q), std::int64_t{in.heads} * in.index_head_dim);
  check_extent(kernel, "columns of weight", columns_in(in.weight), in.heads);
  check_at_least(kernel, "query rows", rows_in(in.q), row0 + n);
  check_at_least(kernel, "rows of weight", rows_in(in.weight), row0 + n);
  check_at_least(kernel, "ratio", in.ratio, 1);
  check_row_map(kernel, in.rows, row0 + n);
  if (in.rows.extent(0) == 0) check_at_least(kernel, "step rows", rows_in(in.step_rows.position), row0 + n);
}

template <class Columns>
void launch_scores(const Exec& exec, const char* label, const IndexQueries& in, const Columns& columns,
                   std::int64_t row0, const Mat<float>& scores) {
  check_queries(label, in, row0, rows_in(scores));
  const std::int64_t items = (columns_in(scores) + kColumnsPerItem - 1) / kColumnsPerItem;
  const auto weight_scale = static_cast<float>(1.0 / std::sqrt(static_cast<double>(in.index_head_dim)) /
                                               std::sqrt(static_cast<double>(in.heads)));
  using Work = ScoreColumns<Columns>;
  const Work work{in, columns, scores, row0, items, weight_scale};
  for_each_team(exec, label, rows_in(scores) * items, Work::scratch(in.heads, in.index_head_dim), work);
}

}  // namespace

void index_scores(const Exec& exec, const IndexQueries& in, std::int64_t row0, const Mat<float>& scores) {
  launch_scores(exec, "bathys.index_scores", in, EveryGroup{}, row0, scores);
}

void index_scores_of_candidates(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                                const Mat<const std::int32_t>& blocks, int block, const Mat<float>& scores) {
  check_at_least("index_scores_of_candidates", "columns of scores", columns_in(scores),
                 std::int64_t{columns_in(blocks)} * block);
  launch_scores(exec, "bathys.index_scores_of_candidates", in, CandidateGroups{blocks, block}, row0, scores);
}

void select_groups(const Exec& exec, const IndexQueries& in, std::int64_t row0, const Mat<const float>& scores,
                   const Mat<std::int32_t>& chosen) {
  check_queries("select_groups", in, row0, rows_in(scores));
  const int topk = columns_in(chosen);
  for_each(
      exec, "bathys.select_groups", rows_in(scores), KOKKOS_LAMBDA(const std::int64_t s) {
        const std::int64_t t = step_row(in.rows, row0 + s);
        select_topk_row(row_of(scores, s), reachable_groups(in.step_rows.position(t), in.ratio), topk,
                        row_of(chosen, t));
      });
}

void select_groups_of_candidates(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                                 const Mat<const float>& scores, const Mat<const std::int32_t>& blocks, int block,
                                 const Mat<std::int32_t>& chosen) {
  check_queries("select_groups_of_candidates", in, row0, rows_in(scores));
  const int topk = columns_in(chosen);
  const CandidateGroups columns{blocks, block};
  for_each(
      exec, "bathys.select_groups_of_candidates", rows_in(scores), KOKKOS_LAMBDA(const std::int64_t s) {
        const std::int64_t t = step_row(in.rows, row0 + s);
        const std::int64_t n = columns.reachable_columns(t, reachable_groups(in.step_rows.position(t), in.ratio));
        std::int32_t* out = row_of(chosen, t);
        select_topk_row(row_of(scores, s), n, topk, out);
        for (int c = 0; c < topk && out[c] >= 0; ++c) out[c] = static_cast<std::int32_t>(columns.group(t, out[c]));
      });
}

void select_candidate_blocks(const Exec& exec, const IndexQueries& in, std::int64_t row0,
                             const Mat<const float>& scores, int block, const Mat<std::int32_t>& blocks) {
  check_queries("select_candidate_blocks", in, row0, rows_in(scores));
  check_at_least("select_candidate_blocks", "block", block, 1);
  const int topk = columns_in(blocks);
  for_each(
      exec, "bathys.select_candidate_blocks", rows_in(scores), KOKKOS_LAMBDA(const std::int64_t s) {
        const std::int64_t t = step_row(in.rows, row0 + s);
        select_blocks_row(row_of(scores, s), reachable_groups(in.step_rows.position(t), in.ratio), block, topk,
                          row_of(blocks, t));
      });
}

}  // namespace bathys::kernels
