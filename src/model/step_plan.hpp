// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "config/engram_layout.hpp"
#include "kernels/attention.hpp"
#include "kernels/compressor.hpp"
#include "model/step.hpp"
#include "model/step_tables.hpp"

#include <cstdint>
#include <vector>

namespace bathys::model {

// Which rows a layer runs, as step rows and as indices into the rows whose stream is at hand when the layer begins
// ("active").  An empty View stands for the identity.
struct LayerRows {
  std::int64_t active = 0, window = 0, full = 0;
  kernels::Vec<const std::int32_t> active_rows, window_rows, full_rows;  // step rows
  kernels::Vec<const std::int32_t> window_of_active, full_of_active;
  kernels::Vec<const std::uint8_t> window_valid;  // [T] by step row; empty: all
};

// One step, laid out for the kernels: built on the host from the chunks, uploaded by one copy.
class StepPlan {
 public:
  StepPlan(const config::ModelConfig& config, const CacheLayout& layout, std::int64_t max_rows, bool cone);

  // Lays out `step` (at most max_rows rows; every sequence has its pages reserved).  token_map: compressed ids, empty
  // without Engram.
  //   throws Error(internal) on too many rows, a sequence that stands twice, a token id outside the vocabulary, a chunk
  //   whose lists differ in length, or a window that a cone left incomplete
  void build(const Exec& exec, const Step& step, const std::vector<std::int32_t>& token_map);
  // After the step has run: lengths, look-backs and valid ranges of its sequences.
  void commit(const Step& step, const std::vector<std::int32_t>& token_map) const;

  // Of the step that was built last; Views by step row [T] or by sequence [B] hold until the next build().
  [[nodiscard]] std::int64_t rows() const { return n_rows_; }
  [[nodiscard]] const LayerRows& layer(int l) const { return layers_[static_cast<std::size_t>(l)]; }
  [[nodiscard]] const kernels::StepRows& step_rows() const { return step_rows_; }
  [[nodiscard]] const kernels::StepSequences& sequences() const { return sequences_; }
  [[nodiscard]] const kernels::Vec<const std::int32_t>& tokens() const { return tokens_; }
  [[nodiscard]] const kernels::Vec<const std::uint8_t>& image() const { return image_; }
  // By KV source (CacheLayout): its pages, and the groups that the step completes with the positions of their first
  // rows.
  [[nodiscard]] const kernels::SourcePages& pages(int source) const { return pages_[static_cast<std::size_t>(source)]; }
  [[nodiscard]] std::int64_t n_groups(int source) const { return n_groups_[static_cast<std::size_t>(source)]; }
  [[nodiscard]] const kernels::StepGroups& groups(int source) const {
    return groups_[static_cast<std::size_t>(source)];
  }
  [[nodiscard]] const kernels::Vec<const std::int64_t>& group_positions(int source) const {
    return group_positions_[static_cast<std::size_t>(source)];
  }
  // Groups that the step's furthest row can see.
  [[nodiscard]] std::int64_t max_reachable(int source) const {
    return max_reachable_[static_cast<std::size_t>(source)];
  }
  // [active, columns] of the rows that are active at that Engram layer.
  [[nodiscard]] const kernels::Mat<const std::int64_t>& engram_ids(int engram) const {
    return engram_ids_[static_cast<std::size_t>(engram)];
  }
  // Wanted rows: their step rows and their places among the rows that the last layer ran in full.
  [[nodiscard]] std::int64_t wanted() const { return static_cast<std::int64_t>(wanted_rows_.size()); }
  [[nodiscard]] const std::vector<std::int32_t>& wanted_rows() const { return wanted_rows_; }
  [[nodiscard]] const kernels::Vec<const std::int32_t>& wanted_of_full() const { return wanted_of_full_; }

 private:
  // The cone's limits, or none where it is off.
  [[nodiscard]] std::int64_t full_limit(int layer) const;
  [[nodiscard]] std::int64_t window_limit(int layer) const;
  void build_rows(const Step& step);
  void build_layers();
  void build_sources(const Step& step);
  void build_engram(const Step& step, const std::vector<std::int32_t>& token_map);
  static void check_sequences(const Step& step);
  void check_windows(const Step& step) const;

  const config::ModelConfig& config_;
  const CacheLayout& layout_;
  config::EngramLayout engram_;
  std::int64_t max_rows_;
  bool cone_;

  StepTables tables_;
  std::int64_t n_rows_ = 0;
  std::vector<std::int64_t> reach_;  // [T]
  std::vector<LayerRows> layers_;
  kernels::StepRows step_rows_;
  kernels::StepSequences sequences_;
  kernels::Vec<const std::int32_t> tokens_;
  kernels::Vec<const std::uint8_t> image_;
  std::vector<kernels::SourcePages> pages_;
  std::vector<std::int64_t> n_groups_, max_reachable_;
  std::vector<kernels::StepGroups> groups_;
  std::vector<kernels::Vec<const std::int64_t>> group_positions_;
  std::vector<std::vector<std::uint8_t>> engram_active_;  // [engram][T]
  std::vector<kernels::Mat<const std::int64_t>> engram_ids_;
  std::vector<std::int32_t> wanted_rows_;
  kernels::Vec<const std::int32_t> wanted_of_full_;
};

}  // namespace bathys::model
