// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.hpp"

#include "kernels/attention_inline.hpp"
#include "kernels/launch.hpp"
#include "kernels/records.hpp"

namespace bathys::kernels {

namespace {

// The keys of one query: window positions ascending, then chosen groups ascending.
struct QueryKeys {
  const AttentionInput& in;
  std::int64_t oldest = 0;      // first window position
  std::int64_t step_first = 0;  // position of the sequence's first row in this step
  std::int64_t step_row = 0;    // and its row
  int n_window = 0;
  int sequence = 0;
  const std::uint8_t* ring = nullptr;
  const std::int32_t* groups = nullptr;

  BATHYS_FUNCTION void decode(int key, float* out) const {
    if (key >= n_window) {
      decode_group(group_record(in.pages, sequence, groups[key - n_window], in.head_dim), in.head_dim, out);
      return;
    }
    const std::int64_t position = oldest + key;
    const std::uint8_t* record = position >= step_first
                                     ? row_of(in.window, step_row + position - step_first)
                                     : ring + position % in.window_size * window_record_bytes(in.head_dim);
    decode_window(record, in.head_dim, out);
  }
};

struct AttendRow {
  AttentionInput in;
  Mat<bf16> out;
  int block = 0;   // heads of a work item
  int blocks = 0;  // work items of a query
  int max_groups = 0;

  template <class Member>
  KOKKOS_INLINE_FUNCTION void operator()(const Member& member) const {
    const std::int64_t i = member.league_rank() / blocks;
    const int head = member.league_rank() % blocks * block;
    const std::int64_t t = step_row(in.rows, i);
    const int b = in.step_rows.sequence(t);
    const std::int64_t position = in.step_rows.position(t);
    const std::int64_t oldest = position - in.window_size + 1 > 0 ? position - in.window_size + 1 : 0;
    QueryKeys keys{in,
                   oldest,
                   in.sequences.first_position(b),
                   in.sequences.first_row(b),
                   static_cast<int>(position - oldest + 1),
                   b,
                   in.sequences.state(b) + in.ring_offset,
                   max_groups == 0 ? nullptr : row_of(in.groups, t)};
    int n_groups = 0;
    while (n_groups < max_groups && keys.groups[n_groups] >= 0) ++n_groups;
    const int heads = head + block < in.heads ? block : in.heads - head;
    const HeadBlock work{heads,
                         in.head_dim,
                         in.scale,
                         row_of(in.q, i) + head * in.head_dim,
                         in.sink.data() + head,
                         row_of(out, i) + head * in.head_dim};
    attend(TeamThreads<Member>{member}, keys, keys.n_window + n_groups, work, team_scratch(member, scratch()));
  }
  [[nodiscard]] BATHYS_FUNCTION std::int64_t scratch() const {
    return attention_scratch(block, in.head_dim, in.window_size + max_groups);
  }
};

// Many heads a work item share the decoding of a key; a few rows are cut finer, so that every thread has something to
// do.
int heads_per_item(const Exec& exec, std::int64_t n, int heads) {
  constexpr int kMost = 32;
  constexpr int kLeast = 4;
  const std::int64_t wanted = 2 * std::int64_t{exec.concurrency()};
  int block = heads < kMost ? heads : kMost;
  while (block > kLeast && n * ((heads + block - 1) / block) < wanted) block = (block + 1) / 2;
  return block;
}

void check_input(const AttentionInput& in, const Mat<bf16>& out) {
  const char* kernel = "sparse_attention";
  const std::int64_t n = rows_in(in.q);
  const std::int64_t steps = rows_in(in.step_rows.position);
  check_multiple(kernel, "head_dim", in.head_dim, 32);
  check_extent(kernel, "columns of q", columns_in(in.q), std::int64_t{in.heads} * in.head_dim);
  check_extent(kernel, "columns of out", columns_in(out), std::int64_t{in.heads} * in.head_dim);
  check_at_least(kernel, "rows of out", rows_in(out), n);
  check_extent(kernel, "length of sink", rows_in(in.sink), in.heads);
  check_extent(kernel, "bytes of a window record", columns_in(in.window), window_record_bytes(in.head_dim));
  check_at_least(kernel, "window_size", in.window_size, 1);
  check_at_least(kernel, "window records", rows_in(in.window), steps);
  check_row_map(kernel, in.rows, n);
  if (in.rows.extent(0) == 0) check_at_least(kernel, "step rows", steps, n);
  if (in.groups.extent(1) != 0) check_at_least(kernel, "rows of groups", rows_in(in.groups), steps);
}

}  // namespace

void sparse_attention(const Exec& exec, const AttentionInput& in, const Mat<bf16>& out) {
  check_input(in, out);
  const std::int64_t n = rows_in(in.q);
  if (n == 0 || in.heads == 0) return;
  const int block = heads_per_item(exec, n, in.heads);
  const AttendRow work{in, out, block, (in.heads + block - 1) / block, columns_in(in.groups)};
  for_each_team(exec, "bathys.sparse_attention", n * work.blocks, work.scratch(), work);
}

void read_ring(const Exec& exec, const std::uint8_t* state, std::int64_t ring_offset, int window, const Mat<bf16>& kv) {
  const int head_dim = columns_in(kv);
  check_multiple("read_ring", "head_dim", head_dim, 32);
  check_at_least("read_ring", "rows of kv", rows_in(kv), window);
  for_each(
      exec, "bathys.read_ring", window, KOKKOS_LAMBDA(const std::int64_t slot) {
        decode_window(state + ring_offset + slot * window_record_bytes(head_dim), head_dim, row_of(kv, slot));
      });
}

}  // namespace bathys::kernels
