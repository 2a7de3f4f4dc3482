// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"

#include "kernels/lanes.hpp"
#include "kernels/launch.hpp"
#include "kernels/records.hpp"
#include "numerics/maths.hpp"

namespace bathys::kernels {

void embed(const Exec& exec, const Vec<const std::int32_t>& tokens, const Mat<const bf16>& table, std::int64_t first,
           const Mat<bf16>& out) {
  const int width = columns_in(table);
  check_extent("embed", "columns of out", columns_in(out), width);
  check_at_least("embed", "rows of out", rows_in(out), rows_in(tokens));
  for_each(
      exec, "bathys.embed", rows_in(tokens), KOKKOS_LAMBDA(const std::int64_t t) {
        const std::int64_t row = tokens(t) - first;
        const bool owned = row >= 0 && row < rows_in(table);
        const bf16* in = table.data();
        if (owned) in = row_of(table, row);
        bf16* to = row_of(out, t);
        for (int c = 0; c < width; ++c) to[c].bits = owned ? in[c].bits : std::uint16_t{0};
      });
}

void start_stream(const Exec& exec, const Mat<const bf16>& x, const Mat<bf16>& h, const Mat<float>& pre) {
  const int width = columns_in(x);
  const int copies = columns_in(pre);
  check_extent("start_stream", "columns of h", columns_in(h), std::int64_t{copies} * width);
  check_at_least("start_stream", "rows of h", rows_in(h), rows_in(x));
  check_at_least("start_stream", "rows of pre", rows_in(pre), rows_in(x));
  for_each(
      exec, "bathys.start_stream", rows_in(x), KOKKOS_LAMBDA(const std::int64_t t) {
        const bf16* in = row_of(x, t);
        for (int j = 0; j < copies; ++j) {
          bf16* to = row_of(h, t) + j * width;
          for (int c = 0; c < width; ++c) to[c] = in[c];
          row_of(pre, t)[j] = j == 0 ? 1.0F : 0.0F;
        }
      });
}

void engram_lookup(const Exec& exec, const Mat<const std::int64_t>& ids, const Mat<const std::uint8_t>& codes,
                   const Mat<const std::uint8_t>& scales, std::int64_t first, const Mat<bf16>& out) {
  const int width = columns_in(codes);
  const int columns = columns_in(ids);
  check_multiple("engram_lookup", "engram_head_dim", width, 32);
  check_extent("engram_lookup", "columns of scales", columns_in(scales), width / 32);
  check_extent("engram_lookup", "columns of out", columns_in(out), std::int64_t{columns} * width);
  check_at_least("engram_lookup", "rows of out", rows_in(out), rows_in(ids));
  for_each(
      exec, "bathys.engram_lookup", rows_in(ids) * columns, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t t = item / columns;
        const int c = static_cast<int>(item % columns);
        bf16* to = row_of(out, t) + c * width;
        const std::int64_t row = row_of(ids, t)[c] - first;
        if (row < 0 || row >= rows_in(codes)) {
          for (int i = 0; i < width; ++i) to[i].bits = 0;
          return;
        }
        // Unlike a cache record a table may hold the NaN code, so this decodes by value.
        for (int i = 0; i < width; ++i) {
          to[i] = bf16(numerics::e4m3_value(row_of(codes, row)[i]) * numerics::e8m0_value(row_of(scales, row)[i / 32]));
        }
      });
}

void engram_apply(const Exec& exec, const Mat<const bf16>& kv, const Mat<const bf16>& q_weight,
                  const Mat<const bf16>& k_weight, const Vec<const std::uint8_t>& image,
                  const Vec<const std::int32_t>& rows, float eps, const Mat<float>& gate_out, const Mat<bf16>& h) {
  const auto copies = static_cast<int>(q_weight.extent(0));
  const int width = columns_in(q_weight);
  check_extent("engram_apply", "columns of kv", columns_in(kv), std::int64_t{copies + 1} * width);
  check_extent("engram_apply", "columns of h", columns_in(h), std::int64_t{copies} * width);
  check_extent("engram_apply", "rows of k_weight", rows_in(k_weight), copies);
  check_extent("engram_apply", "columns of k_weight", columns_in(k_weight), width);
  check_at_least("engram_apply", "rows of h", rows_in(h), rows_in(kv));
  check_row_map("engram_apply", rows, rows_in(kv));
  const bool with_images = image.extent(0) != 0;
  if (with_images && rows.extent(0) == 0) check_at_least("engram_apply", "image marks", rows_in(image), rows_in(kv));
  const float root = numerics::reciprocal_sqrt(static_cast<float>(width));
  for_each(
      exec, "bathys.engram_apply", rows_in(kv) * copies, KOKKOS_LAMBDA(const std::int64_t item) {
        const std::int64_t i = item / copies;
        const int j = static_cast<int>(item % copies);
        const bf16* key = row_of(kv, i) + j * width;
        const bf16* value = row_of(kv, i) + copies * width;
        const bf16* q = row_of(q_weight, j);
        const bf16* k = row_of(k_weight, j);
        bf16* stream = row_of(h, i) + j * width;
        Lanes sum;
        for (int c = 0; c < width; c += kLanes) {
          const int left = width - c;
          const Lanes weighted = multiply_lanes(load_lanes(stream + c, left),
                                                multiply_lanes(load_lanes(q + c, left), load_lanes(k + c, left)));
          sum = fma_lanes(weighted, load_lanes(key + c, left), sum);
        }
        const auto length = static_cast<float>(width);
        const float dot = tree_lanes(sum) * numerics::reciprocal_sqrt(dot_row(stream, stream, width) / length + eps) *
                          numerics::reciprocal_sqrt(dot_row(key, key, width) / length + eps) * root;
        const float magnitude = numerics::abs_float(dot);
        const float rooted = sqrtf(magnitude < 1e-6F ? 1e-6F : magnitude);
        const float gate =
            with_images && image(step_row(rows, i)) != 0 ? 0.0F : numerics::sigmoid(copysignf(rooted, dot));
        if (gate_out.extent(1) != 0) row_of(gate_out, i)[j] = gate;
        for (int c = 0; c < width; c += kLanes) {
          const int left = width - c;
          const Lanes update = multiply_lanes(broadcast_lanes(gate), load_lanes(value + c, left));
          store_lanes(stream + c, add_lanes(load_lanes(stream + c, left), update), left);
        }
      });
}

namespace {

template <class T>
void gather(const Exec& exec, const Mat<const T>& in, const Vec<const std::int32_t>& rows, const Mat<T>& out) {
  const int width = columns_in(out);
  check_extent("gather_rows", "columns of in", columns_in(in), width);
  check_at_least("gather_rows", "rows of out", rows_in(out), rows_in(rows));
  for_each(
      exec, "bathys.gather_rows", rows_in(rows), KOKKOS_LAMBDA(const std::int64_t i) {
        const T* from = row_of(in, rows(i));
        T* to = row_of(out, i);
        for (int c = 0; c < width; ++c) to[c] = from[c];
      });
}

}  // namespace

void gather_rows(const Exec& exec, const Mat<const bf16>& in, const Vec<const std::int32_t>& rows,
                 const Mat<bf16>& out) {
  gather<bf16>(exec, in, rows, out);
}
void gather_rows(const Exec& exec, const Mat<const float>& in, const Vec<const std::int32_t>& rows,
                 const Mat<float>& out) {
  gather<float>(exec, in, rows, out);
}

}  // namespace bathys::kernels
