// SPDX-License-Identifier: Apache-2.0
#include "kernels/sampling.hpp"

#include "kernels/launch.hpp"
#include "numerics/fixed_point.hpp"
#include "numerics/maths.hpp"
#include "numerics/philox.hpp"

namespace bathys::kernels {

namespace {

BATHYS_FUNCTION float minus_infinity() { return numerics::float_of_bits(0xff800000U); }
BATHYS_FUNCTION float not_a_number() { return numerics::float_of_bits(0x7fc00000U); }

// Order-preserving integer of a logit, NaN above all and -0 equal to +0: integer maxima vectorize, and their order does
// not matter.
BATHYS_FUNCTION std::uint32_t rank_of(float logit) {
  const std::uint32_t u = numerics::bits_of_float(logit + 0.0F);
  const std::uint32_t flip = (0U - (u >> 31)) | 0x80000000U;
  const std::uint32_t nan = 0U - static_cast<std::uint32_t>((u & 0x7fffffffU) > 0x7f800000U);
  return (u ^ flip) | nan;
}

struct Best {
  float value = 0;
  std::int64_t column = -1;
};

// The largest of `columns` logits and the first place where it stands; NaN and -1 where one is NaN.
BATHYS_FUNCTION Best row_best(const float* logits, std::int64_t columns) {
  constexpr std::int64_t kBlock = 256;
  Best best{minus_infinity(), -1};
  std::uint32_t rank = 0;
  // Block by block: only a block that raises the maximum is searched for its place.
  for (std::int64_t first = 0; first < columns; first += kBlock) {
    const std::int64_t end = first + kBlock < columns ? first + kBlock : columns;
    std::uint32_t block_rank = 0;
    for (std::int64_t c = first; c < end; ++c) {
      const std::uint32_t r = rank_of(logits[c]);
      block_rank = r > block_rank ? r : block_rank;
    }
    if (block_rank == 0xffffffffU) return {not_a_number(), -1};
    if (block_rank <= rank) continue;
    rank = block_rank;
    best.column = first;
    while (rank_of(logits[best.column]) != rank) ++best.column;
    best.value = logits[best.column];
  }
  return best;
}

}  // namespace

void best_logit(const Exec& exec, const Mat<const float>& logits, std::int64_t first, const Vec<float>& best,
                const Vec<std::int64_t>& id) {
  check_at_least("best_logit", "length of best", rows_in(best), rows_in(logits));
  check_at_least("best_logit", "length of id", rows_in(id), rows_in(logits));
  for_each(
      exec, "bathys.best_logit", rows_in(logits), KOKKOS_LAMBDA(const std::int64_t q) {
        const Best found = row_best(row_of(logits, q), static_cast<std::int64_t>(logits.extent(1)));
        best(q) = found.value;
        id(q) = found.column < 0 ? -1 : first + found.column;
      });
}

void sum_exp(const Exec& exec, const Mat<const float>& logits, const Vec<const float>& max,
             const Vec<std::int64_t>& sums) {
  check_at_least("sum_exp", "length of max", rows_in(max), rows_in(logits));
  check_at_least("sum_exp", "length of sums", rows_in(sums), rows_in(logits));
  const int width = columns_in(logits);
  const int chunks = chunks_of(width);
  for_each(
      exec, "bathys.sum_exp.clear", rows_in(logits), KOKKOS_LAMBDA(const std::int64_t q) { sums(q) = 0; });
  for_each(
      exec, "bathys.sum_exp", rows_in(logits) * chunks, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t q = item / chunks;
        const int chunk = static_cast<int>(item % chunks);
        const float* l = row_of(logits, q);
        const float largest = max(q);
        const int end = chunk_end(chunk, width);
        std::int64_t sum = 0;
        for (int c = chunk * kColumnChunk; c < end; ++c) {
          const float e = numerics::exp_float(l[c] - largest);
          const float grain = e <= 1.0F ? e : 0.0F;  // at most 1; NaN: best_logit has told already
          sum += numerics::to_fixed_small<numerics::kExpBits>(grain);
        }
        Kokkos::atomic_add(&sums(q), sum);  // integers: any order gives the same bits
      });
}

void pick_logit(const Exec& exec, const Mat<const float>& logits, std::int64_t first,
                const Vec<const std::int64_t>& ids, const Vec<float>& out) {
  check_at_least("pick_logit", "length of ids", rows_in(ids), rows_in(logits));
  check_at_least("pick_logit", "length of out", rows_in(out), rows_in(logits));
  for_each(
      exec, "bathys.pick_logit", rows_in(logits), KOKKOS_LAMBDA(const std::int64_t q) {
        const std::int64_t column = ids(q) - first;
        const bool owned = ids(q) >= 0 && column >= 0 && column < static_cast<std::int64_t>(logits.extent(1));
        out(q) = owned ? row_of(logits, q)[column] : 0.0F;
      });
}

namespace {

// The running best of a draw: larger total, then lower id.
struct Draw {
  double total = 0;
  std::int64_t id = -1;
  BATHYS_FUNCTION void offer(double candidate, std::int64_t candidate_id) {
    if (id < 0 || candidate > total || (candidate == total && candidate_id < id)) {
      total = candidate;
      id = candidate_id;
    }
  }
};

// The noise of one row; four neighbouring ids share a block of the generator.
struct RowNoise {
  std::uint64_t key = 0;
  std::int64_t position = 0;
  std::int32_t repeat = 0;
  std::int64_t block_id = -1;
  numerics::PhiloxBlock block{};

  BATHYS_FUNCTION std::uint32_t word(std::int64_t id) {
    if (id / 4 != block_id) {
      block_id = id / 4;
      block = numerics::noise_block(key, position, repeat, block_id);
    }
    return block.word[id % 4];
  }
};

// Whether a word can give noise of at least `gap`.  g >= gap needs 1 - u <= -log u <= e^-gap <= 2^-n with n = floor(gap
// / ln 2), so the word's complement must be below 2^(32-n).  1.4426 is a little less than 1 / ln 2, which leaves room
// for every rounding.
BATHYS_FUNCTION bool may_reach(std::uint32_t word, double gap) {
  if (!(gap > 0)) return true;
  if (gap >= 22.9) return false;
  const int n = static_cast<int>(gap * 1.4426);
  return n >= 32 ? ~word == 0 : (static_cast<std::uint64_t>(~word) >> (32 - n)) == 0;
}

struct DrawRow {
  Mat<const float> logits;
  std::int64_t first = 0;
  DrawKeys keys;
  Mat<const std::uint32_t> allowed;
  Vec<double> best;
  Vec<std::int64_t> id;

  BATHYS_FUNCTION bool is_allowed(std::int64_t q, std::int64_t column) const {
    return allowed.extent(1) == 0 || ((row_of(allowed, q)[column / 32] >> (column % 32)) & 1U) != 0;
  }
  BATHYS_FUNCTION void greedy(std::int64_t q, Draw& draw) const {
    const float* l = row_of(logits, q);
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(logits.extent(1)); ++c) {
      if (is_allowed(q, c)) draw.offer(static_cast<double>(l[c]), first + c);
    }
  }
  BATHYS_FUNCTION void noisy(std::int64_t q, Best start, Draw& draw) const {
    const float* l = row_of(logits, q);
    const float temperature = keys.temperature(q) > kMinTemperature ? keys.temperature(q) : kMinTemperature;
    RowNoise noise{keys.key(q), keys.position(q), keys.repeat(q)};
    // Start from the largest logit, then most others are ruled out by their word alone, before any logarithm.
    if (is_allowed(q, start.column)) {
      draw.offer(static_cast<double>(start.value / temperature) + numerics::gumbel(noise.word(first + start.column)),
                 first + start.column);
    }
    for (std::int64_t c = 0; c < static_cast<std::int64_t>(logits.extent(1)); ++c) {
      if (!is_allowed(q, c)) continue;
      const auto scaled = static_cast<double>(l[c] / temperature);
      const double gap = draw.total - scaled;
      if (draw.id >= 0 && gap >= 22.9) continue;
      const std::uint32_t word = noise.word(first + c);
      if (draw.id >= 0 && !may_reach(word, gap)) continue;
      draw.offer(scaled + numerics::gumbel(word), first + c);
    }
  }
  KOKKOS_INLINE_FUNCTION void operator()(const std::int64_t q) const {
    Draw draw{static_cast<double>(minus_infinity()), -1};
    const Best start = row_best(row_of(logits, q), static_cast<std::int64_t>(logits.extent(1)));
    if (start.value != start.value) {
      draw.total = static_cast<double>(not_a_number());
    } else if (start.column >= 0) {
      if (keys.temperature(q) == 0.0F) {
        greedy(q, draw);
      } else {
        noisy(q, start, draw);
      }
    }
    best(q) = draw.total;
    id(q) = draw.id;
  }
};

}  // namespace

void draw(const Exec& exec, const Mat<const float>& logits, std::int64_t first, const DrawKeys& keys,
          const Mat<const std::uint32_t>& allowed, const Vec<double>& best, const Vec<std::int64_t>& id) {
  const std::int64_t n = rows_in(logits);
  check_at_least("draw", "keys", rows_in(keys.key), n);
  check_at_least("draw", "positions", rows_in(keys.position), n);
  check_at_least("draw", "repeats", rows_in(keys.repeat), n);
  check_at_least("draw", "temperatures", rows_in(keys.temperature), n);
  check_at_least("draw", "length of best", rows_in(best), n);
  check_at_least("draw", "length of id", rows_in(id), n);
  if (allowed.extent(1) != 0) {
    check_at_least("draw", "rows of allowed", rows_in(allowed), n);
    check_extent("draw", "columns of allowed", columns_in(allowed), (columns_in(logits) + 31) / 32);
  }
  for_each(exec, "bathys.draw", n, DrawRow{logits, first, keys, allowed, best, id});
}

}  // namespace bathys::kernels
