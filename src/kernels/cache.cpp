// SPDX-License-Identifier: Apache-2.0
#include "kernels/cache.hpp"

#include "kernels/launch.hpp"
#include "kernels/records.hpp"

namespace bathys::kernels {

void store_window(const Exec& exec, const Mat<const bf16>& kv, const Vec<const std::int32_t>& rows,
                  const Mat<std::uint8_t>& records) {
  const int head_dim = columns_in(kv);
  check_multiple("store_window", "head_dim", head_dim, 32);
  check_extent("store_window", "bytes of a record", columns_in(records), window_record_bytes(head_dim));
  check_row_map("store_window", rows, rows_in(kv));
  if (rows.extent(0) == 0) check_at_least("store_window", "records", rows_in(records), rows_in(kv));
  for_each(
      exec, "bathys.store_window", rows_in(kv), KOKKOS_LAMBDA(const std::int64_t i) {
        encode_window(row_of(kv, i), head_dim, row_of(records, step_row(rows, i)));
      });
}

void commit_window(const Exec& exec, const StepSequences& sequences, const StepRows& rows,
                   const Mat<const std::uint8_t>& records, const Vec<const std::uint8_t>& row_valid,
                   std::int64_t ring_offset, int window) {
  const int bytes = columns_in(records);
  const std::int64_t n = rows_in(rows.position);
  check_extent("commit_window", "sequence numbers", rows_in(rows.sequence), n);
  check_at_least("commit_window", "records", rows_in(records), n);
  if (row_valid.extent(0) != 0) check_at_least("commit_window", "validity marks", rows_in(row_valid), n);
  for_each(
      exec, "bathys.commit_window", n, KOKKOS_LAMBDA(const std::int64_t t) {
        const int b = rows.sequence(t);
        const std::int64_t end = sequences.first_row(b) + std::int64_t{sequences.n_rows(b)};
        // Of two rows for one slot only the later may write, whatever the order in which threads come by.
        if (t < end - window || (row_valid.extent(0) != 0 && row_valid(t) == 0)) return;
        std::uint8_t* slot = sequences.state(b) + ring_offset + rows.position(t) % window * bytes;
        const std::uint8_t* record = row_of(records, t);
        for (int i = 0; i < bytes; ++i) slot[i] = record[i];
      });
}

}  // namespace bathys::kernels
