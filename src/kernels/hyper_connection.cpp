// SPDX-License-Identifier: Apache-2.0
#include "kernels/hyper_connection.hpp"

#include "kernels/lanes.hpp"
#include "kernels/launch.hpp"

namespace bathys::kernels {

namespace {

inline constexpr int kMaxCopies = 8;
inline constexpr int kRowBlock =
    16;  // rows that share one pass over a tile of F, so that the tile stays in the L2 cache
inline constexpr int kOutputTile = 4;

// The dots land where their mixes will stand: pre, post, comb together have one place for each.
BATHYS_FUNCTION float* mix_place(const HyperConnectionMix& mix, std::int64_t row, int copies, int output) {
  if (output < copies) return row_of(mix.pre, row) + output;
  if (output < 2 * copies) return row_of(mix.post, row) + output - copies;
  return row_of(mix.comb, row) + output - 2 * copies;
}

// (F h) for a block of rows and a tile of outputs.
struct MixDots {
  Mat<const bf16> h;
  Mat<const float> fn;
  HyperConnectionMix mix;
  int copies = 0;
  std::int64_t tiles = 0;

  template <int kOutputs>
  BATHYS_FUNCTION void tile(std::int64_t row, int output) const {
    float dots[kOutputs][1];
    dot_tile<kOutputs, 1>(row_of(fn, output), static_cast<std::int64_t>(fn.stride(0)), row_of(h, row), 0, rows_length(),
                          dots);
    for (int j = 0; j < kOutputs; ++j) *mix_place(mix, row, copies, output + j) = dots[j][0];
  }
  BATHYS_FUNCTION std::int64_t rows_length() const { return static_cast<std::int64_t>(h.extent(1)); }

  KOKKOS_INLINE_FUNCTION void operator()(const std::int64_t item) const {
    const std::int64_t first_row = item / tiles * kRowBlock;
    const std::int64_t end_row = first_row + kRowBlock < rows_in(h) ? first_row + kRowBlock : rows_in(h);
    const int first = static_cast<int>(item % tiles) * kOutputTile;
    const int outputs = (2 + copies) * copies - first;
    for (std::int64_t row = first_row; row < end_row; ++row) {
      if (outputs >= kOutputTile) {
        tile<kOutputTile>(row, first);
      } else {
        for (int j = 0; j < outputs; ++j) tile<1>(row, first + j);
      }
    }
  }
};

}  // namespace

void hc_mixes(const Exec& exec, const Mat<const bf16>& h, const HyperConnectionWeights& w, int copies,
              int sinkhorn_iters, float hc_eps, float norm_eps, const HyperConnectionMix& out) {
  const int width = columns_in(h);
  const int outputs = (2 + copies) * copies;
  const std::int64_t n = rows_in(h);
  check_extent("hc_mixes", "rows of F", rows_in(w.fn), outputs);
  check_extent("hc_mixes", "columns of F", columns_in(w.fn), width);
  check_extent("hc_mixes", "length of scale", rows_in(w.scale), 3);
  check_extent("hc_mixes", "length of base", rows_in(w.base), outputs);
  check_extent("hc_mixes", "columns of comb", columns_in(out.comb), copies * copies);
  check_extent("hc_mixes", "columns of pre", columns_in(out.pre), copies);
  check_extent("hc_mixes", "columns of post", columns_in(out.post), copies);
  check_at_least("hc_mixes", "largest number of copies that the kernel takes", kMaxCopies, copies);
  const MixDots dots{h, w.fn, out, copies, (outputs + kOutputTile - 1) / kOutputTile};
  for_each(exec, "bathys.hc_mixes.dots", (n + kRowBlock - 1) / kRowBlock * dots.tiles, dots);
  for_each(
      exec, "bathys.hc_mixes.finish", n, KOKKOS_LAMBDA(const std::int64_t i) {
        const bf16* x = row_of(h, i);
        const float r = numerics::reciprocal_sqrt(dot_row(x, x, width) / static_cast<float>(width) + norm_eps);
        float m[(2 + kMaxCopies) * kMaxCopies];
        for (int j = 0; j < outputs; ++j) m[j] = *mix_place(out, i, copies, j) * r;
        hc_mix_from_dots(m, w.scale.data(), w.base.data(), copies, sinkhorn_iters, hc_eps, row_of(out.pre, i),
                         row_of(out.post, i), row_of(out.comb, i));
      });
}

void hc_pre(const Exec& exec, const Mat<const bf16>& h, const Mat<const float>& pre, const Mat<bf16>& x) {
  const int copies = columns_in(pre);
  const int width = columns_in(x);
  check_extent("hc_pre", "columns of h", columns_in(h), std::int64_t{copies} * width);
  check_at_least("hc_pre", "rows of pre", rows_in(pre), rows_in(h));
  check_at_least("hc_pre", "rows of x", rows_in(x), rows_in(h));
  const int chunks = chunks_of(width);
  for_each(
      exec, "bathys.hc_pre", rows_in(h) * chunks, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / chunks;
        const int chunk = static_cast<int>(item % chunks);
        const bf16* in = row_of(h, i);
        const float* p = row_of(pre, i);
        bf16* out = row_of(x, i);
        const int end = chunk_end(chunk, width);
        for (int c = chunk * kColumnChunk; c < end; c += kLanes) {
          Lanes sum;
          for (int j = 0; j < copies; ++j) {
            sum = add_lanes(sum, multiply_lanes(broadcast_lanes(p[j]), load_lanes(in + j * width + c, end - c)));
          }
          store_lanes(out + c, sum, end - c);
        }
      });
}

void hc_post(const Exec& exec, const Mat<const bf16>& y, const Mat<const float>& post, const Mat<const float>& comb,
             const Mat<bf16>& h) {
  const int copies = columns_in(post);
  const int width = columns_in(y);
  check_extent("hc_post", "columns of h", columns_in(h), std::int64_t{copies} * width);
  check_extent("hc_post", "columns of comb", columns_in(comb), copies * copies);
  check_at_least("hc_post", "largest number of copies that the kernel takes", kMaxCopies, copies);
  check_at_least("hc_post", "rows of h", rows_in(h), rows_in(y));
  const int chunks = chunks_of(width);
  for_each(
      exec, "bathys.hc_post", rows_in(y) * chunks, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / chunks;
        const int chunk = static_cast<int>(item % chunks);
        bf16* stream = row_of(h, i);
        const bf16* in = row_of(y, i);
        const float* gain = row_of(post, i);
        const float* mix = row_of(comb, i);
        const int end = chunk_end(chunk, width);
        for (int c = chunk * kColumnChunk; c < end; c += kLanes) {
          Lanes old[kMaxCopies];
          for (int j = 0; j < copies; ++j) old[j] = load_lanes(stream + j * width + c, end - c);
          const Lanes update = load_lanes(in + c, end - c);
          for (int k = 0; k < copies; ++k) {
            Lanes sum;
            for (int j = 0; j < copies; ++j)
              sum = add_lanes(sum, multiply_lanes(broadcast_lanes(mix[j * copies + k]), old[j]));
            store_lanes(stream + k * width + c, add_lanes(multiply_lanes(broadcast_lanes(gain[k]), update), sum),
                        end - c);
          }
        }
      });
}

}  // namespace bathys::kernels
