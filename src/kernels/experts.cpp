// SPDX-License-Identifier: Apache-2.0
#include "kernels/experts.hpp"

#include "kernels/launch.hpp"
#include "numerics/fixed_point.hpp"
#include "numerics/maths.hpp"
#include "numerics/reduce.hpp"

namespace bathys::kernels {

namespace {

// Scores of one row, computed when asked for: no workspace.
struct RowScores {
  const float* logits = nullptr;
  GateFunction function = GateFunction::softmax;
  float temperature = 1;
  float largest = 0;  // softmax only
  float total = 1;

  BATHYS_FUNCTION float logit(int e) const { return logits[e] / temperature; }
  BATHYS_FUNCTION void prepare(int experts) {
    if (function != GateFunction::softmax) return;
    largest = logit(0);
    for (int e = 1; e < experts; ++e) largest = logit(e) > largest ? logit(e) : largest;
    total = numerics::sum16(
        experts, [this](std::int64_t e) { return numerics::exp_float(logit(static_cast<int>(e)) - largest); });
  }
  BATHYS_FUNCTION float operator()(int e) const {
    if (function == GateFunction::softmax) return numerics::exp_float(logit(e) - largest) / total;
    return function == GateFunction::sigmoid ? numerics::sigmoid(logit(e)) : sqrtf(numerics::softplus(logit(e)));
  }
};

inline constexpr int kMaxChosen = 64;

// The best k so far, best first.  A later expert passes an earlier one only when it is strictly better, NaN being worse
// than any number.
struct BestList {  // NOLINT(cppcoreguidelines-pro-type-member-init): the first `size` entries are set, others not read
  float rank[kMaxChosen];  // score + bias
  float score[kMaxChosen];
  std::int32_t id[kMaxChosen];
  int size = 0;

  BATHYS_FUNCTION static bool better(float a, float b) {
    return a > b || (numerics::is_nan(b) && !numerics::is_nan(a));
  }

  BATHYS_FUNCTION void offer(float new_rank, float new_score, std::int32_t new_id, int k) {
    if (size == k && !better(new_rank, rank[k - 1])) return;
    int at = size < k ? size++ : k - 1;
    for (; at > 0 && better(new_rank, rank[at - 1]); --at) move(at - 1, at);
    rank[at] = new_rank;
    score[at] = new_score;
    id[at] = new_id;
  }
  BATHYS_FUNCTION void move(int from, int to) {
    rank[to] = rank[from];
    score[to] = score[from];
    id[to] = id[from];
  }
  BATHYS_FUNCTION void sort_by_id() {
    for (int i = 1; i < size; ++i) {
      const std::int32_t moved_id = id[i];
      const float moved_score = score[i];
      int at = i;
      for (; at > 0 && id[at - 1] > moved_id; --at) move(at - 1, at);
      id[at] = moved_id;
      score[at] = moved_score;
    }
  }
};

}  // namespace

void gate(const Exec& exec, const Mat<const float>& logits, const Vec<const float>& bias,
          const Vec<const float>& bias_image, const Vec<const std::uint8_t>& image, const Vec<const std::int32_t>& rows,
          const GateSettings& settings, const Mat<std::int32_t>& chosen, const Mat<float>& weight) {
  const int experts = columns_in(logits);
  const int k = columns_in(chosen);
  check_extent("gate", "length of bias", rows_in(bias), experts);
  if (bias_image.extent(0) != 0) {
    check_extent("gate", "length of bias_image", rows_in(bias_image), experts);
    if (rows.extent(0) == 0) check_at_least("gate", "image marks", rows_in(image), rows_in(logits));
  }
  check_extent("gate", "columns of weight", columns_in(weight), k);
  check_at_least("gate", "number of experts", experts, k);
  check_at_least("gate", "largest number of chosen experts that the kernel takes", kMaxChosen, k);
  check_at_least("gate", "number of chosen experts", k, 1);
  check_row_map("gate", rows, rows_in(logits));
  for_each(
      exec, "bathys.gate", rows_in(logits), KOKKOS_LAMBDA(const std::int64_t i) {
        const bool in_image = bias_image.extent(0) != 0 && image(step_row(rows, i)) != 0;
        const float* b = in_image ? bias_image.data() : bias.data();
        RowScores score{row_of(logits, i), settings.function, settings.temperature};
        score.prepare(experts);
        BestList best;
        for (int e = 0; e < experts; ++e) {
          const float s = score(e);
          best.offer(s + b[e], s, e, k);
        }
        best.sort_by_id();
        float divisor = 1.0F;
        if (settings.normalize && k > 1) {
          divisor = numerics::sum16(k, [&best](std::int64_t c) { return best.score[c]; }) + 1e-20F;
        }
        for (int c = 0; c < k; ++c) {
          row_of(chosen, i)[c] = best.id[c];
          row_of(weight, i)[c] = best.score[c] / divisor * settings.route_scale;
        }
      });
}

void group_by_expert(const Exec& exec, const Mat<const std::int32_t>& chosen, const Mat<const float>& weight, int first,
                     int count, const Vec<std::int32_t>& offsets, const Vec<std::int32_t>& row_of_assignment,
                     const Vec<float>& weight_of, const Mat<std::int32_t>& assignment) {
  const int k = columns_in(chosen);
  const std::int64_t n = rows_in(chosen);
  check_extent("group_by_expert", "length of offsets", rows_in(offsets), count + 1);
  check_at_least("group_by_expert", "length of row_of", rows_in(row_of_assignment), n * k);
  check_at_least("group_by_expert", "length of weight_of", rows_in(weight_of), n * k);
  check_at_least("group_by_expert", "rows of assignment", rows_in(assignment), n);
  check_extent("group_by_expert", "columns of assignment", columns_in(assignment), k);
  // One work item: counting, prefix sum and placing are a few operations a pair, and their order fixes the result.
  for_each(
      exec, "bathys.group_by_expert", 1, KOKKOS_LAMBDA(const std::int64_t) {
        for (int e = 0; e <= count; ++e) offsets(e) = 0;
        for (std::int64_t i = 0; i < n; ++i) {
          for (int c = 0; c < k; ++c) {
            const int e = row_of(chosen, i)[c] - first;
            if (e >= 0 && e < count) ++offsets(e + 1);
          }
        }
        for (int e = 0; e < count; ++e) offsets(e + 1) += offsets(e);
        for (std::int64_t i = 0; i < n; ++i) {
          for (int c = 0; c < k; ++c) {
            const int e = row_of(chosen, i)[c] - first;
            std::int32_t place = -1;
            if (e >= 0 && e < count) {
              place = offsets(e)++;
              row_of_assignment(place) = static_cast<std::int32_t>(i);
              weight_of(place) = row_of(weight, i)[c];
            }
            row_of(assignment, i)[c] = place;
          }
        }
        for (int e = count; e > 0; --e) offsets(e) = offsets(e - 1);  // each start had moved to its end
        offsets(0) = 0;
      });
}

void swiglu(const Exec& exec, const Mat<const bf16>& g, const Mat<const bf16>& u, const Vec<const float>& weight,
            float limit, const Mat<bf16>& h) {
  const int width = columns_in(g);
  check_extent("swiglu", "columns of u", columns_in(u), width);
  check_extent("swiglu", "columns of h", columns_in(h), width);
  check_at_least("swiglu", "rows of u", rows_in(u), rows_in(g));
  check_at_least("swiglu", "rows of h", rows_in(h), rows_in(g));
  if (weight.extent(0) != 0) check_at_least("swiglu", "length of weight", rows_in(weight), rows_in(g));
  const int chunks = chunks_of(width);
  const float bound = limit > 0 ? limit : numerics::float_of_bits(0x7f800000U);
  for_each(
      exec, "bathys.swiglu", rows_in(g) * chunks, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / chunks;
        const int chunk = static_cast<int>(item % chunks);
        const bf16* gate = row_of(g, i);
        const bf16* up = row_of(u, i);
        bf16* out = row_of(h, i);
        const float w = weight.extent(0) != 0 ? weight(i) : 1.0F;
        const int end = chunk_end(chunk, width);
        for (int c = chunk * kColumnChunk; c < end; ++c) {
          auto x = static_cast<float>(gate[c]);
          auto y = static_cast<float>(up[c]);
          x = x > bound ? bound : x;  // NaN passes
          y = y > bound ? bound : y < -bound ? -bound : y;
          out[c] = bf16(w * (numerics::silu(x) * y));
        }
      });
}

namespace {

using numerics::kExpertBits;

// Whether every grain fits and is small enough for to_fixed_small; compares bits, so that NaN and
// infinity are large and the loop vectorizes.
template <class T>
BATHYS_FUNCTION bool all_small(const T* y, int begin, int end, int n_grains) {
  std::uint32_t largest = 0;
  for (int c = begin; c < end; ++c) {
    const std::uint32_t magnitude = numerics::bits_of_float(static_cast<float>(y[c])) & 0x7fffffffU;
    largest = magnitude > largest ? magnitude : largest;
  }
  return largest < numerics::bits_of_float(0x1p14F) && n_grains <= 4096;
}

// Columns [begin, end) of sums += grains that fit.
template <class T>
BATHYS_FUNCTION void add_fixed(const T* y, int begin, int end, int n_grains, std::int64_t* sums) {
  if (all_small(y, begin, end, n_grains)) {
    for (int c = begin; c < end; ++c) sums[c] += numerics::to_fixed_small<kExpertBits>(static_cast<float>(y[c]));
    return;
  }
  for (int c = begin; c < end; ++c) {
    const auto v = static_cast<float>(y[c]);
    if (numerics::grain_fits<kExpertBits>(v, n_grains)) sums[c] += numerics::to_fixed<kExpertBits>(v);
  }
}

// Grains of one row that do not fit.
template <class T>
BATHYS_FUNCTION std::int64_t count_unfit(const T* y, int width, int n_grains) {
  if (all_small(y, 0, width, n_grains)) return 0;
  std::int64_t unfit = 0;
  for (int c = 0; c < width; ++c)
    unfit += numerics::grain_fits<kExpertBits>(static_cast<float>(y[c]), n_grains) ? 0 : 1;
  return unfit;
}

}  // namespace

void sum_experts(const Exec& exec, const Mat<const bf16>& y, const Mat<const std::int32_t>& assignment,
                 const Mat<std::int64_t>& sums) {
  const int width = columns_in(y);
  const int k = columns_in(assignment);
  check_extent("sum_experts", "columns of sums", columns_in(sums), width + 1);
  check_at_least("sum_experts", "rows of sums", rows_in(sums), rows_in(assignment));
  const int items = chunks_of(width) + 1;  // the last one counts what does not fit
  for_each(
      exec, "bathys.sum_experts", rows_in(assignment) * items, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t t = item / items;
        const int chunk = static_cast<int>(item % items);
        const std::int32_t* places = row_of(assignment, t);
        std::int64_t* out = row_of(sums, t);
        const bool count = chunk == items - 1;
        const int begin = count ? width : chunk * kColumnChunk;
        const int end = count ? width + 1 : chunk_end(chunk, width);
        for (int c = begin; c < end; ++c) out[c] = 0;
        for (int c = 0; c < k; ++c) {
          if (places[c] < 0) continue;
          const bf16* grain = row_of(y, places[c]);
          if (count) {
            out[width] += count_unfit(grain, width, k);
          } else {
            add_fixed(grain, begin, end, k, out);
          }
        }
      });
}

void finish_sum(const Exec& exec, const Mat<const std::int64_t>& sums, const Mat<const bf16>& shared,
                const Vec<const std::int32_t>& rows, int layer, const Vec<std::int32_t>& bad_layer,
                const Mat<bf16>& out) {
  const int width = columns_in(out);
  const bool with_shared = shared.extent(1) != 0;
  check_extent("finish_sum", "columns of sums", columns_in(sums), width + 1);
  check_at_least("finish_sum", "rows of out", rows_in(out), rows_in(sums));
  check_row_map("finish_sum", rows, rows_in(sums));
  if (with_shared) {
    check_extent("finish_sum", "columns of shared", columns_in(shared), width);
    check_at_least("finish_sum", "rows of shared", rows_in(shared), rows_in(sums));
  }
  if (rows.extent(0) == 0) check_at_least("finish_sum", "length of bad_layer", rows_in(bad_layer), rows_in(sums));
  const int chunks = chunks_of(width);
  for_each(
      exec, "bathys.finish_sum", rows_in(sums) * chunks, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / chunks;
        const int chunk = static_cast<int>(item % chunks);
        const std::int64_t* sum = row_of(sums, i);
        const int end = chunk_end(chunk, width);
        for (int c = chunk * kColumnChunk; c < end; ++c) {
          auto v = static_cast<float>(numerics::from_fixed<kExpertBits>(sum[c]));
          if (with_shared) v += static_cast<float>(row_of(shared, i)[c]);
          row_of(out, i)[c] = bf16(v);
        }
        if (chunk == 0 && sum[width] != 0) {
          std::int32_t& bad = bad_layer(step_row(rows, i));
          bad = layer < bad ? layer : bad;
        }
      });
}

void add_grain(const Exec& exec, const Mat<const float>& y, int n_grains, bool first, const Mat<std::int64_t>& sums) {
  const int width = columns_in(y);
  check_extent("add_grain", "columns of sums", columns_in(sums), width + 1);
  check_at_least("add_grain", "rows of sums", rows_in(sums), rows_in(y));
  const int items = chunks_of(width) + 1;
  for_each(
      exec, "bathys.add_grain", rows_in(y) * items, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t t = item / items;
        const int chunk = static_cast<int>(item % items);
        std::int64_t* out = row_of(sums, t);
        const bool count = chunk == items - 1;
        const int begin = count ? width : chunk * kColumnChunk;
        const int end = count ? width + 1 : chunk_end(chunk, width);
        if (first) {
          for (int c = begin; c < end; ++c) out[c] = 0;
        }
        if (count) {
          out[width] += count_unfit(row_of(y, t), width, n_grains);
        } else {
          add_fixed(row_of(y, t), begin, end, n_grains, out);
        }
      });
}

}  // namespace bathys::kernels
