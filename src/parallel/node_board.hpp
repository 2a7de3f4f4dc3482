// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace bathys::parallel {

// A short text that one process writes and others read at any time; a reader may see it half old and half new, never
// out of bounds.
template <std::size_t kWords>
class SharedText {
 public:
  static constexpr std::size_t kBytes = kWords * sizeof(std::uint64_t);
  void set(std::string_view text) noexcept {
    for (std::size_t w = 0; w < kWords; ++w) {
      std::uint64_t word = 0;
      for (std::size_t b = 0; b < sizeof word && w * sizeof word + b < text.size(); ++b) {
        word |= std::uint64_t{static_cast<unsigned char>(text[w * sizeof word + b])} << (8 * b);
      }
      words_[w].store(word, std::memory_order_relaxed);
    }
  }
  [[nodiscard]] std::string get() const {
    std::string text;
    for (const auto& atom : words_) {
      for (std::uint64_t word = atom.load(std::memory_order_relaxed); word != 0; word >>= 8) {
        text += static_cast<char>(word & 0xff);
      }
    }
    return text;
  }

 private:
  std::array<std::atomic<std::uint64_t>, kWords> words_{};
};

// What each rank of a node shows to the others in shared memory: it needs no help from a process that hangs, so a
// watchdog can read it.
class NodeBoard {
 public:
  struct Slot {
    std::atomic<std::int64_t> rank{0};
    std::atomic<std::int64_t> progress_ns{0};  // steady clock, common to all processes of a node
    std::atomic<std::int64_t> pulse_ns{0};     // last sign of life of the process, whatever its main thread does; 0: it
                                               // gives none, before its watchdog begins and after it has ended
    std::atomic<std::int64_t> n_calls{0};      // collectives entered so far
    SharedText<12> phase;
    SharedText<3> call;  // the collective being executed, empty between two
  };

  // Over the ranks that share this node's memory.  MPI must be initialized; collective.
  [[nodiscard]] static std::unique_ptr<NodeBoard> over_node();
  // Of one process without MPI.  It counts as the node of its `rank`.
  [[nodiscard]] static std::unique_ptr<NodeBoard> alone(int rank = 0);
  ~NodeBoard();
  NodeBoard(const NodeBoard&) = delete;
  NodeBoard& operator=(const NodeBoard&) = delete;

  [[nodiscard]] int local_rank() const;
  [[nodiscard]] int local_size() const;
  [[nodiscard]] int node() const;
  [[nodiscard]] int n_nodes() const;
  [[nodiscard]] const std::string& host() const;

  [[nodiscard]] Slot& mine();
  [[nodiscard]] const Slot& slot(int local_rank) const;

  // True for the first caller on this node: it speaks for the node.
  [[nodiscard]] bool claim_last_word() noexcept;

  static std::int64_t now_ns() noexcept;

 private:
  struct State;
  explicit NodeBoard(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace bathys::parallel
