// SPDX-License-Identifier: Apache-2.0
#include "kernels/attention.hpp"

#include "core/error.hpp"
#include "kernels/attention_inline.hpp"
#include "kernels/compressor.hpp"
#include "kernels/launch.hpp"
#include "kernels/sequences.hpp"
#include "reference/rows.hpp"
#include "support/golden.hpp"

#include <limits>
#include <numeric>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using namespace kernels;

// Keys picked out of decoded rows by a list, as the golden primitive has them.
struct ListedKeys {
  const float* rows;
  const std::int64_t* list;
  int head_dim;
  void decode(int key, float* out) const { std::copy_n(rows + list[key] * head_dim, head_dim, out); }
};

class SparseAttentionGolden : public testing::TestWithParam<std::string> {};

TEST_P(SparseAttentionGolden, the_body_equals_the_golden_outputs_for_any_cut_of_the_heads) {
  const GoldenFile file("ops.h5");
  const std::string group = "sparse_attn/" + GetParam();
  const auto q = file.array(group + "/q");
  const auto kv = file.array(group + "/kv");
  const auto idx = file.array(group + "/idx");
  const auto sink = file.array(group + "/sink");
  const auto heads = static_cast<int>(q.shape[1]);
  const auto d = static_cast<int>(q.shape[2]);
  for (const int block : {1, 2, 3, heads}) {
    std::vector<float> got;
    for (std::int64_t i = 0; i < q.rows(); ++i) {
      std::vector<std::int64_t> list;
      for (const auto k : slice(idx.i, i * idx.row_size(), (i + 1) * idx.row_size())) {
        if (k >= 0) list.push_back(k);
      }
      std::vector<bf16> query;
      for (const float v : slice(q.f, i * q.row_size(), (i + 1) * q.row_size())) query.emplace_back(v);
      std::vector<bf16> out(query.size());
      for (int head = 0; head < heads; head += block) {
        const HeadBlock work{std::min(block, heads - head),
                             d,
                             static_cast<float>(file.attribute(group, "scale")),
                             query.data() + head * d,
                             sink.f.data() + head,
                             out.data() + head * d};
        std::vector<float> scratch(
            static_cast<std::size_t>(attention_scratch(block, d, static_cast<int>(list.size()))));
        attend(OneThread{}, ListedKeys{kv.f.data(), list.data(), d}, static_cast<int>(list.size()), work,
               scratch.data());
      }
      for (const bf16 v : out) got.push_back(static_cast<float>(v));
    }
    expect_bf16_close(got, file.array(group + "/o"), group);
  }
}

INSTANTIATE_TEST_SUITE_P(All, SparseAttentionGolden, testing::Values("small", "wide"),
                         [](const auto& tested) { return tested.param; });

// A team's scratch as a CUDA launch lays it out: just what was asked for, where the host has room to spare.
struct DeviceTeam {
  Kokkos::ScratchMemorySpace<Exec> memory;
  [[nodiscard]] const Kokkos::ScratchMemorySpace<Exec>& team_scratch(int level) const {
    return memory.set_team_thread_mode(level, 1, 0);
  }
};

TEST(TeamScratch, is_there_on_a_device_whatever_the_number_of_floats) {
  for (const int floats : {1, 2, 3, 31, 32, 33, 6081}) {  // 3 heads of 32 with 640 keys make an odd number
    std::vector<double> memory(static_cast<std::size_t>(floats));
    const DeviceTeam team{{nullptr, 0, memory.data(), static_cast<int>(team_scratch_bytes(floats))}};
    EXPECT_EQ(static_cast<void*>(team_scratch(team, floats)), static_cast<void*>(memory.data())) << floats;
  }
}

// A model of what attention should see: one sequence's whole history in plain vectors.
struct History {
  static constexpr int kHeads = 5;
  static constexpr int kDim = 64;
  static constexpr int kIndexDim = 32;
  int window;
  int length;
  std::vector<float> kv;      // [length, d] bf16 before storing
  std::vector<float> latent;  // [length, d] compressed, ratio 1
  std::vector<float> q;       // [length, H*d]
  std::vector<float> sink;

  History(int window_, int length_) : window(window_), length(length_) {
    const auto n = static_cast<std::size_t>(length * kDim);
    kv = random_values(n, 1);
    latent = random_values(n, 2);
    q = random_values(n * kHeads, 3);
    sink = random_values(kHeads, 4);
  }
  // Chosen groups of position t: a scattered subset of what is reachable.
  [[nodiscard]] std::vector<std::int32_t> groups_of(int t, int topk) const {
    std::vector<std::int32_t> out;
    for (std::int32_t j = t % 2; j <= t && static_cast<int>(out.size()) < topk; j += 1 + t % 3) out.push_back(j);
    out.resize(static_cast<std::size_t>(topk), -1);
    return out;
  }

  // Runs positions 0 .. length-1 in steps of `chunk` rows, next to a second sequence that lags behind; returns [length,
  // H*d].
  [[nodiscard]] std::vector<float> run(int chunk, int topk) const {
    const std::int64_t record = window_record_bytes(kDim);
    const std::int64_t ring_offset = 24;
    const Sequences sequences(2, ring_offset + window * record, length / kGroupsPerPage + 1,
                              page_bytes(kDim, kIndexDim));
    std::vector<std::int64_t> j(static_cast<std::size_t>(length));
    std::iota(j.begin(), j.end(), 0);
    store_groups(Exec(), to_mat<bf16>(length, kDim, latent),
                 to_mat<bf16>(length, kIndexDim, std::vector<float>(j.size() * kIndexDim)),
                 {to_vec<std::int32_t>(std::vector<int>(j.size(), 1)), to_vec<std::int64_t>(j)}, sequences.pages());
    std::vector<float> out;
    for (int first = 0; first < length; first += chunk) {
      const int n = std::min(chunk, length - first);
      const auto step = sequences.step({0, first}, {1, n});  // sequence 0 always decodes position 0
      const auto at = [&](const std::vector<float>& v, std::int64_t width) {
        auto rows = slice(v, 0, width);
        const auto mine = slice(v, first * width, (first + n) * width);
        rows.insert(rows.end(), mine.begin(), mine.end());
        return rows;
      };
      const auto records = poisoned<std::uint8_t>(n + 1, record);
      store_window(Exec(), to_mat<bf16>(n + 1, kDim, at(kv, kDim)), {}, records);
      AttentionInput in;
      in.q = to_mat<bf16>(n + 1, kHeads * kDim, at(q, kHeads * kDim));
      in.step_rows = step.rows;
      in.sequences = step.sequences;
      in.window = records;
      in.ring_offset = ring_offset;
      in.window_size = window;
      std::vector<std::int32_t> groups(static_cast<std::size_t>(topk), -1);
      for (int t = first; t < first + n; ++t) {
        const auto mine = groups_of(t, topk);
        groups.insert(groups.end(), mine.begin(), mine.end());
      }
      if (topk > 0) in.groups = to_mat<std::int32_t>(n + 1, topk, groups);
      in.pages = sequences.pages();
      in.index_head_dim = kIndexDim;
      in.sink = to_vec<float>(sink);
      in.heads = kHeads;
      in.head_dim = kDim;
      in.scale = 0.125F;
      const auto result = poisoned<bf16>(n + 1, kHeads * kDim);
      sparse_attention(Exec(), in, result);
      commit_window(Exec(), step.sequences, step.rows, records, {}, ring_offset, window);
      const auto rows = to_floats(result);
      out.insert(out.end(), rows.begin() + kHeads * kDim, rows.end());
    }
    return out;
  }

  // What a cache gives back.
  [[nodiscard]] static std::vector<float> decoded(const std::vector<float>& rows, bool window_kind) {
    const auto n = static_cast<std::int64_t>(rows.size()) / kDim;
    const auto back = poisoned<bf16>(n, kDim);
    if (window_kind) {
      const auto records = poisoned<std::uint8_t>(n, window_record_bytes(kDim));
      store_window(Exec(), to_mat<bf16>(n, kDim, rows), {}, records);
      read_ring(Exec(), records.data(), 0, static_cast<int>(n), back);
    } else {
      const Sequences sequences(1, 8, static_cast<int>(n / kGroupsPerPage + 1), page_bytes(kDim, kIndexDim));
      std::vector<std::int64_t> j(static_cast<std::size_t>(n));
      std::iota(j.begin(), j.end(), 0);
      store_groups(Exec(), to_mat<bf16>(n, kDim, rows),
                   to_mat<bf16>(n, kIndexDim, std::vector<float>(j.size() * kIndexDim)),
                   {to_vec<std::int32_t>(std::vector<int>(j.size(), 0)), to_vec<std::int64_t>(j)}, sequences.pages());
      read_groups(Exec(), sequences.pages(), 0, n, back, poisoned<bf16>(n, kIndexDim));
    }
    return to_floats(back);
  }

  [[nodiscard]] std::vector<double> expected(int topk) const {
    const auto window_kv = decoded(kv, true);
    const auto group_kv = decoded(latent, false);
    const auto row_of = [](const std::vector<float>& v, int i) {
      const auto part = slice(v, i * kDim, (i + 1) * kDim);
      return reference::Doubles(part.begin(), part.end());
    };
    std::vector<double> out;
    for (int t = 0; t < length; ++t) {
      std::vector<reference::Doubles> keys;
      for (int p = std::max(0, t - window + 1); p <= t; ++p) keys.push_back(row_of(window_kv, p));
      for (const auto g : groups_of(t, topk)) {
        if (g >= 0) keys.push_back(row_of(group_kv, g));
      }
      for (int h = 0; h < kHeads; ++h) {
        const auto o =
            reference::attend(row_of(q, t * kHeads + h), keys, double(sink[static_cast<std::size_t>(h)]), 0.125);
        out.insert(out.end(), o.begin(), o.end());
      }
    }
    return out;
  }
};

TEST(SparseAttention, agrees_with_a_double_loop_over_window_and_groups) {
  for (const int window : {1, 7, 16}) {
    for (const int topk : {0, 1, 20}) {
      const History history(window, 70);
      const auto got = history.run(70, topk);
      const auto want = history.expected(topk);
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t i = 0; i < want.size(); ++i) {
        // one bf16 rounding, and float32 sums of some 30 terms
        ASSERT_NEAR(got[i], want[i], std::fabs(want[i]) * 0x1.02p-8 + 2e-6) << window << " " << topk << " " << i;
      }
    }
  }
}

// The ring holds positions out of order, and chunks longer than it overwrite their own rows: neither may change a bit.
TEST(SparseAttention, gives_the_same_bits_in_chunks_of_any_size) {
  for (const int window : {7, 16}) {
    const History history(window, 53);
    const auto whole = history.run(53, 20);
    for (const int chunk : {1, 2, 3, 5, 8, 16, 17, 40})
      EXPECT_EQ(history.run(chunk, 20), whole) << window << " " << chunk;
  }
}

TEST(CommitWindow, puts_the_last_rows_in_the_slots_of_their_positions_and_skips_rows_without_a_record) {
  const int window = 4;
  const Sequences sequences(2, window * 33 + 3, 0, 8);
  const auto step = sequences.step({5, 10}, {7, 2});  // positions 5..11 and 10, 11
  const auto records = Mat<std::uint8_t>("test.records", 9, 33);
  const auto host = Kokkos::create_mirror_view(records);
  for (std::size_t t = 0; t < 9; ++t) {
    for (std::size_t i = 0; i < 33; ++i) host(t, i) = static_cast<std::uint8_t>(10 * t + i % 10);
  }
  Kokkos::deep_copy(records, host);
  const auto valid = to_vec<std::uint8_t>(std::vector<int>{1, 1, 1, 1, 1, 0, 1, 1, 1});
  commit_window(Exec(), step.sequences, step.rows, records, valid, 3, window);
  const auto state = sequences.state_bytes();
  const auto slot = [&](int b, int s) { return state[static_cast<std::size_t>(b * (window * 33 + 3) + 3 + s * 33)]; };
  EXPECT_EQ(slot(0, 0), 30);    // position 8 = row 3
  EXPECT_EQ(slot(0, 1), 40);    // 9
  EXPECT_EQ(slot(0, 2), 0xff);  // 10 has no record
  EXPECT_EQ(slot(0, 3), 60);    // 11
  EXPECT_EQ(slot(1, 2), 70);
  EXPECT_EQ(slot(1, 3), 80);
  EXPECT_EQ(slot(1, 0), 0xff);
}

TEST(SparseAttention, of_a_row_map_is_the_attention_of_those_rows) {
  const int d = 32;
  const Sequences sequences(1, 8 * window_record_bytes(d), 0, 8);
  const auto step = sequences.step({0}, {6});
  const auto records = poisoned<std::uint8_t>(6, window_record_bytes(d));
  store_window(Exec(), to_mat<bf16>(6, d, random_values(6 * d, 1)), {}, records);
  const auto q = random_values(6 * 2 * d, 2);
  AttentionInput in;
  in.q = to_mat<bf16>(6, 2 * d, q);
  in.step_rows = step.rows;
  in.sequences = step.sequences;
  in.window = records;
  in.window_size = 4;
  in.sink = to_vec<float>(std::vector<float>{0, -std::numeric_limits<float>::infinity()});
  in.heads = 2;
  in.head_dim = d;
  in.scale = 0.2F;
  const auto all = poisoned<bf16>(6, 2 * d);
  sparse_attention(Exec(), in, all);
  auto some_q = slice(q, 2 * 2 * d, 3 * 2 * d);
  const auto last = slice(q, 5 * 2 * d, 6 * 2 * d);
  some_q.insert(some_q.end(), last.begin(), last.end());
  in.q = to_mat<bf16>(2, 2 * d, some_q);
  in.rows = to_vec<std::int32_t>(std::vector<int>{2, 5});
  const auto some = poisoned<bf16>(2, 2 * d);
  sparse_attention(Exec(), in, some);
  const auto whole = to_host(all);
  auto want = slice(whole, 2 * 2 * d, 3 * 2 * d);
  const auto tail = slice(whole, 5 * 2 * d, 6 * 2 * d);
  want.insert(want.end(), tail.begin(), tail.end());
  EXPECT_EQ(to_host(some), want);
  // A sink of -infinity takes no weight, and the newest row of a one-row window is its own value.
  in.window_size = 1;
  sparse_attention(Exec(), in, some);
  const auto values = poisoned<bf16>(6, d);
  read_ring(Exec(), records.data(), 0, 6, values);
  EXPECT_EQ(slice(to_host(some), d, 2 * d), slice(to_host(values), 2 * d, 3 * d));
}

TEST(SparseAttention, refuses_shapes_that_disagree) {
  AttentionInput in;
  in.q = Mat<bf16>("test.q", 1, 64);
  in.heads = 2;
  in.head_dim = 33;
  EXPECT_THROW(sparse_attention(Exec(), in, Mat<bf16>("test.out", 1, 64)), Error);
}

}  // namespace
}  // namespace bathys::test
