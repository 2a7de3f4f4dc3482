// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "kernels/lanes.hpp"
#include "kernels/views.hpp"
#include "numerics/maths.hpp"

// The body of sparse attention for one query and a block of its heads, apart from where the keys come from, so that
// tests can feed it decoded keys.  No number depends on how heads are cut into blocks or work onto threads: every dot,
// weight and output element has its own fixed order.
namespace bathys::kernels {

inline constexpr int kKeyTile = 16;  // keys decoded at a time
inline constexpr int kDotHeads = 2;  // heads and keys of a tile of q.k: two loads each for four fused multiply-adds
inline constexpr int kDotKeys = 2;
inline constexpr int kSumHeads = 4;  // heads that share a load of 16 value columns

// The whole body by one thread (tests).
struct OneThread {
  template <class Body>
  BATHYS_FUNCTION void each(int n, const Body& body) const {
    for (int i = 0; i < n; ++i) body(i);
  }
  BATHYS_FUNCTION void wait() const {}
};

// The body shared by the threads of a Kokkos team (on the host a team is one thread).
template <class Member>
struct TeamThreads {
  const Member& member;
  template <class Body>
  BATHYS_FUNCTION void each(int n, const Body& body) const {
    Kokkos::parallel_for(Kokkos::TeamThreadRange(member, n), body);
  }
  BATHYS_FUNCTION void wait() const { member.team_barrier(); }
};

struct HeadBlock {
  int heads = 0;
  int head_dim = 0;  // multiple of 16
  float scale = 0;
  const bf16* q = nullptr;      // [heads, head_dim]
  const float* sink = nullptr;  // [heads]
  bf16* out = nullptr;          // [heads, head_dim]
};

// Floats of scratch for a block with up to max_keys keys.
BATHYS_FUNCTION std::int64_t attention_scratch(int heads, int head_dim, int max_keys) {
  return std::int64_t{2 * heads + kKeyTile} * head_dim + std::int64_t{heads} * (max_keys + 1);
}

// Keys: `void decode(int key, float* out) const` writes the head_dim values of one key, in visiting order; called twice
// a key.
template <class Threads, class Keys>
struct AttendHeads {
  const Threads& threads;
  const Keys& keys;
  const HeadBlock& block;
  int n_keys;
  float* q;        // [heads, head_dim]
  float* sum;      // [heads, head_dim]
  float* tile;     // [kKeyTile, head_dim]
  float* weight;   // [heads, n_keys]: logits, then exp(l - max)
  float* divisor;  // [heads]

  BATHYS_FUNCTION int columns() const { return block.head_dim / kLanes; }

  BATHYS_FUNCTION void start() const {
    const AttendHeads& self = *this;
    threads.each(block.heads * columns(), [&self](int i) {
      store_lanes(self.q + i * kLanes, load_lanes(self.block.q + i * kLanes));
      store_lanes(self.sum + i * kLanes, Lanes{});
    });
  }

  BATHYS_FUNCTION void decode(int first, int count) const {
    const AttendHeads& self = *this;
    threads.wait();  // the tile's last readers are done
    threads.each(count, [&self, first](int k) { self.keys.decode(first + k, self.tile + k * self.block.head_dim); });
    threads.wait();
  }

  template <int kHeads, int kKeys>
  BATHYS_FUNCTION void logits_tile(int head, int first, int key) const {
    const int d = block.head_dim;
    float dots[kHeads][kKeys];
    dot_tile<kHeads, kKeys>(q + head * d, d, tile + key * d, d, d, dots);
    for (int i = 0; i < kHeads; ++i) {
      for (int j = 0; j < kKeys; ++j) weight[(head + i) * n_keys + first + key + j] = dots[i][j] * block.scale;
    }
  }
  // Logits of `count` decoded keys, first being the number of the tile's key 0.
  BATHYS_FUNCTION void logits(int first, int count) const {
    const AttendHeads& self = *this;
    const int key_pairs = (count + kDotKeys - 1) / kDotKeys;
    const int head_pairs = (block.heads + kDotHeads - 1) / kDotHeads;
    threads.each(head_pairs * key_pairs, [&self, first, count, key_pairs](int i) {
      const int head = i / key_pairs * kDotHeads;
      const int key = i % key_pairs * kDotKeys;
      const bool both_heads = head + kDotHeads <= self.block.heads;
      const bool both_keys = key + kDotKeys <= count;
      if (both_heads && both_keys) {
        self.template logits_tile<kDotHeads, kDotKeys>(head, first, key);
      } else if (both_heads) {
        self.template logits_tile<kDotHeads, 1>(head, first, key);
      } else if (both_keys) {
        self.template logits_tile<1, kDotKeys>(head, first, key);
      } else {
        self.template logits_tile<1, 1>(head, first, key);
      }
    });
  }

  // exp(l - max) and the denominator; the sink takes part in both but has no value.
  BATHYS_FUNCTION void weights() const {
    const AttendHeads& self = *this;
    threads.wait();
    threads.each(block.heads, [&self](int head) {
      float* w = self.weight + head * self.n_keys;
      const float sink = self.block.sink[head];
      float largest = sink;
      for (int k = 0; k < self.n_keys; ++k) largest = w[k] > largest ? w[k] : largest;
      for (int k = 0; k < self.n_keys; ++k) w[k] = numerics::exp_float(w[k] - largest);
      const float total = numerics::sum16(self.n_keys, [w](std::int64_t k) { return w[k]; });
      self.divisor[head] = total + numerics::exp_float(sink - largest);
    });
  }

  template <int kHeads>
  BATHYS_FUNCTION void sum_tile(int head, int column, int first, int count) const {
    const int d = block.head_dim;
    float* out = sum + head * d + column;
    const float* w = weight + head * n_keys + first;
    Lanes acc[kHeads];
    BATHYS_UNROLL
    for (int i = 0; i < kHeads; ++i) acc[i] = load_lanes(out + i * d);
    for (int k = 0; k < count; ++k) {
      const Lanes value = load_lanes(tile + k * d + column);
      BATHYS_UNROLL
      for (int i = 0; i < kHeads; ++i) acc[i] = fma_lanes(broadcast_lanes(w[i * n_keys + k]), value, acc[i]);
    }
    BATHYS_UNROLL
    for (int i = 0; i < kHeads; ++i) store_lanes(out + i * d, acc[i]);
  }
  BATHYS_FUNCTION void add_values(int first, int count) const {
    const AttendHeads& self = *this;
    const int head_tiles = (block.heads + kSumHeads - 1) / kSumHeads;
    threads.each(columns() * head_tiles, [&self, first, count, head_tiles](int i) {
      const int column = i / head_tiles * kLanes;
      int head = i % head_tiles * kSumHeads;
      if (head + kSumHeads <= self.block.heads) {
        self.template sum_tile<kSumHeads>(head, column, first, count);
      } else {
        for (; head < self.block.heads; ++head) self.template sum_tile<1>(head, column, first, count);
      }
    });
  }

  BATHYS_FUNCTION void finish() const {
    const AttendHeads& self = *this;
    threads.wait();
    threads.each(block.heads * columns(), [&self](int i) {
      const float whole = self.divisor[i / self.columns()];
      float lane[kLanes];
      for (int l = 0; l < kLanes; ++l) lane[l] = self.sum[i * kLanes + l] / whole;
      store_lanes(self.block.out + i * kLanes, load_lanes(lane));
    });
  }
};

template <class Threads, class Keys>
BATHYS_FUNCTION void attend(const Threads& threads, const Keys& keys, int n_keys, const HeadBlock& block,
                            float* scratch) {
  const int size = block.heads * block.head_dim;
  float* tile = scratch + 2 * size;
  float* weight = tile + kKeyTile * block.head_dim;
  const AttendHeads<Threads, Keys> work{
      threads, keys, block, n_keys, scratch, scratch + size, tile, weight, weight + block.heads * n_keys};
  work.start();
  for (int first = 0; first < n_keys; first += kKeyTile) {
    const int count = n_keys - first < kKeyTile ? n_keys - first : kKeyTile;
    work.decode(first, count);
    work.logits(first, count);
  }
  work.weights();
  for (int first = 0; first < n_keys; first += kKeyTile) {
    const int count = n_keys - first < kKeyTile ? n_keys - first : kKeyTile;
    if (n_keys > kKeyTile)
      work.decode(first, count);  // the only tile is still there
    else
      threads.wait();
    work.add_values(first, count);
  }
  work.finish();
}

}  // namespace bathys::kernels
