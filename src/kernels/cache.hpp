// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/views.hpp"

// Where a step's rows find their sequence's caches.  A sequence owns one state block (window rings of all layers, open
// compressor groups) and, per KV source, pages of compressed groups.  All values are stored as codes with scales, which
// loses nothing.
namespace bathys::kernels {

inline constexpr int kGroupsPerPage = 64;

// Window record of one position: d E4M3 codes, then d/32 E8M0 scales (Q8).
BATHYS_FUNCTION constexpr std::int64_t window_record_bytes(int head_dim) { return head_dim + head_dim / 32; }
// Compressed KV record of one group: d/2 bytes of E2M1 pairs, then d/16 E4M3 scales (Q4x16).
BATHYS_FUNCTION constexpr std::int64_t group_record_bytes(int head_dim) { return head_dim / 2 + head_dim / 16; }
// Index key record of one group: id/2 bytes of E2M1 pairs, then id/32 E8M0 scales (Q4x32).
BATHYS_FUNCTION constexpr std::int64_t key_record_bytes(int index_head_dim) {
  return index_head_dim / 2 + index_head_dim / 32;
}
// A page: kGroupsPerPage group records, then kGroupsPerPage key records.
BATHYS_FUNCTION constexpr std::int64_t page_bytes(int head_dim, int index_head_dim) {
  return kGroupsPerPage * (group_record_bytes(head_dim) + key_record_bytes(index_head_dim));
}

// Base of a block of cache memory.  A type of its own because Kokkos reads a trailing `*` of an element type as one
// more rank.
struct BlockAddress {
  std::uint8_t* bytes = nullptr;
  BATHYS_FUNCTION operator std::uint8_t*() const {
    return bytes;
  }  // NOLINT(google-explicit-constructor): it is a pointer
};

// The sequences of one step.  Rows of a sequence are consecutive step rows with ascending positions.
struct StepSequences {
  Vec<const std::int64_t> first_position;  // [B] position of the sequence's first row in this step
  Vec<const std::int32_t> first_row;       // [B] its step row
  Vec<const std::int32_t> n_rows;          // [B]
  Vec<const BlockAddress> state;           // [B] base of the state block
};
struct StepRows {
  Vec<const std::int64_t> position;  // [T]
  Vec<const std::int32_t> sequence;  // [T] index into StepSequences
};
// The pages of one KV source: page p of sequence b is pages[first_page[b] + p].
struct SourcePages {
  Vec<const BlockAddress> pages;
  Vec<const std::int32_t> first_page;  // [B]
};

// Stores bf16 [n, d] rows as window records of this step.   rows [n]: step row of each (empty: row i is step row i)
//   records [T, window_record_bytes]
void store_window(const Exec& exec, const Mat<const bf16>& kv, const Vec<const std::int32_t>& rows,
                  const Mat<std::uint8_t>& records);

// After a layer's attention: copies the step's records of the last min(W, n_rows) rows of each sequence into its ring
// (slot = position mod W at state + ring_offset).   row_valid [T] (empty: all): 0 = the row has no record and is
// skipped
void commit_window(const Exec& exec, const StepSequences& sequences, const StepRows& rows,
                   const Mat<const std::uint8_t>& records, const Vec<const std::uint8_t>& row_valid,
                   std::int64_t ring_offset, int window);

}  // namespace bathys::kernels
