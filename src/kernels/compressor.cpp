// SPDX-License-Identifier: Apache-2.0
#include "kernels/compressor.hpp"

#include "kernels/launch.hpp"
#include "kernels/records.hpp"
#include "numerics/maths.hpp"

namespace bathys::kernels {

namespace {

// Where the float32 kv and gate of one position are: among this step's rows, or in the open group of the sequence's
// state.
struct Member {
  const float* kv = nullptr;
  const float* gate = nullptr;
};
BATHYS_FUNCTION float* open_row(const StepSequences& sequences, int b, std::int64_t open_offset, int slot,
                                int head_dim) {
  return reinterpret_cast<float*>(sequences.state(b) + open_offset) + std::int64_t{slot} * 2 * head_dim;
}
BATHYS_FUNCTION Member member_at(const Mat<const float>& kv, const Mat<const float>& gate,
                                 const StepSequences& sequences, int b, std::int64_t position, int ratio,
                                 std::int64_t open_offset) {
  const std::int64_t back = position - sequences.first_position(b);
  if (back >= 0) {
    const std::int64_t row = sequences.first_row(b) + back;
    return {row_of(kv, row), row_of(gate, row)};
  }
  const int head_dim = columns_in(kv);
  const float* open = open_row(sequences, b, open_offset, static_cast<int>(position % ratio), head_dim);
  return {open, open + head_dim};
}

}  // namespace

void compress_pool(const Exec& exec, const Mat<const float>& kv, const Mat<const float>& gate, int ratio,
                   const StepSequences& sequences, const StepGroups& groups, std::int64_t open_offset,
                   const Mat<bf16>& pooled) {
  const int head_dim = columns_in(kv);
  check_extent("compress_pool", "columns of gate", columns_in(gate), head_dim);
  check_extent("compress_pool", "columns of pooled", columns_in(pooled), head_dim);
  check_multiple("compress_pool", "head_dim", head_dim, kLanes);
  check_extent("compress_pool", "group numbers", rows_in(groups.group), rows_in(groups.sequence));
  check_at_least("compress_pool", "rows of pooled", rows_in(pooled), rows_in(groups.group));
  for_each(
      exec, "bathys.compress_pool", rows_in(groups.group), KOKKOS_LAMBDA(const std::int64_t i) {
        const int b = groups.sequence(i);
        const std::int64_t first = groups.group(i) * ratio;
        bf16* out = row_of(pooled, i);
        for (int c = 0; c < head_dim; c += kLanes) {
          float largest[kLanes];
          for (int t = 0; t < ratio; ++t) {
            const float* g = member_at(kv, gate, sequences, b, first + t, ratio, open_offset).gate + c;
            for (int l = 0; l < kLanes; ++l) largest[l] = t == 0 || g[l] > largest[l] ? g[l] : largest[l];
          }
          float total[kLanes] = {};
          for (int t = 0; t < ratio; ++t) {
            const float* g = member_at(kv, gate, sequences, b, first + t, ratio, open_offset).gate + c;
            for (int l = 0; l < kLanes; ++l) total[l] += numerics::exp_float(g[l] - largest[l]);
          }
          float sum[kLanes] = {};
          for (int t = 0; t < ratio; ++t) {
            const Member m = member_at(kv, gate, sequences, b, first + t, ratio, open_offset);
            for (int l = 0; l < kLanes; ++l)
              sum[l] += numerics::exp_float(m.gate[c + l] - largest[l]) / total[l] * m.kv[c + l];
          }
          for (int l = 0; l < kLanes; ++l) out[c + l] = bf16(sum[l]);
        }
      });
}

void compress_keep_open(const Exec& exec, const Mat<const float>& kv, const Mat<const float>& gate, int ratio,
                        const StepSequences& sequences, std::int64_t open_offset) {
  const int head_dim = columns_in(kv);
  check_extent("compress_keep_open", "columns of gate", columns_in(gate), head_dim);
  check_at_least("compress_keep_open", "ratio", ratio, 1);
  const int slots = ratio - 1;
  for_each(
      exec, "bathys.compress_keep_open", rows_in(sequences.first_position) * slots,
      KOKKOS_LAMBDA(const std::int64_t item) {
        const int b = static_cast<int>(item / slots);
        const int slot = static_cast<int>(item % slots);
        const std::int64_t end = sequences.first_position(b) + sequences.n_rows(b);
        const std::int64_t position = end / ratio * ratio + slot;
        if (position >= end || position < sequences.first_position(b))
          return;  // not seen yet, or kept by an earlier step
        const Member m = member_at(kv, gate, sequences, b, position, ratio, open_offset);
        float* open = open_row(sequences, b, open_offset, slot, head_dim);
        for (int c = 0; c < head_dim; ++c) {
          open[c] = m.kv[c];
          open[head_dim + c] = m.gate[c];
        }
      });
}

void store_groups(const Exec& exec, const Mat<const bf16>& latent, const Mat<const bf16>& key, const StepGroups& groups,
                  const SourcePages& pages) {
  const int head_dim = columns_in(latent);
  const int index_head_dim = columns_in(key);
  check_multiple("store_groups", "head_dim", head_dim, 32);
  check_multiple("store_groups", "index_head_dim", index_head_dim, 32);
  check_extent("store_groups", "group numbers", rows_in(groups.group), rows_in(groups.sequence));
  check_at_least("store_groups", "rows of latent", rows_in(latent), rows_in(groups.group));
  check_at_least("store_groups", "rows of key", rows_in(key), rows_in(groups.group));
  for_each(
      exec, "bathys.store_groups", rows_in(groups.group), KOKKOS_LAMBDA(const std::int64_t i) {
        const int b = groups.sequence(i);
        const std::int64_t j = groups.group(i);
        encode_group(row_of(latent, i), head_dim, group_record(pages, b, j, head_dim));
        encode_key(row_of(key, i), index_head_dim, key_record(pages, b, j, head_dim, index_head_dim));
      });
}

void read_groups(const Exec& exec, const SourcePages& pages, int sequence, std::int64_t n_groups,
                 const Mat<bf16>& latent, const Mat<bf16>& key) {
  const int head_dim = columns_in(latent);
  const int index_head_dim = columns_in(key);
  check_multiple("read_groups", "head_dim", head_dim, 32);
  check_multiple("read_groups", "index_head_dim", index_head_dim, 32);
  check_at_least("read_groups", "rows of latent", rows_in(latent), n_groups);
  check_at_least("read_groups", "rows of key", rows_in(key), n_groups);
  for_each(
      exec, "bathys.read_groups", n_groups, KOKKOS_LAMBDA(const std::int64_t j) {
        decode_group(group_record(pages, sequence, j, head_dim), head_dim, row_of(latent, j));
        decode_key(key_record(pages, sequence, j, head_dim, index_head_dim), index_head_dim, row_of(key, j));
      });
}

}  // namespace bathys::kernels
