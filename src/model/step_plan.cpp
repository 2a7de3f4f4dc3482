// SPDX-License-Identifier: Apache-2.0
#include "model/step_plan.hpp"

#include "core/error.hpp"
#include "kernels/embedding.hpp"

#include <algorithm>

namespace bathys::model {

StepPlan::StepPlan(const config::ModelConfig& config, const CacheLayout& layout, std::int64_t max_rows, bool cone)
    : config_(config), layout_(layout), max_rows_(max_rows), cone_(cone && config.cone_layer() >= 0) {
  if (config.engram_enabled()) engram_ = config::engram_layout(config);
  const auto sources = static_cast<std::size_t>(layout.n_sources());
  layers_.resize(static_cast<std::size_t>(config.n_layers));
  pages_.resize(sources);
  n_groups_.resize(sources);
  max_reachable_.resize(sources);
  groups_.resize(sources);
  group_positions_.resize(sources);
  engram_ids_.resize(config.engram_layer_ids.size());
  engram_active_.resize(config.engram_layer_ids.size());
}

std::int64_t StepPlan::full_limit(int layer) const { return cone_ ? cone_full_limit(config_, layer) : kNoReach; }
std::int64_t StepPlan::window_limit(int layer) const { return cone_ ? cone_window_limit(config_, layer) : kNoReach; }

void StepPlan::build(const Exec& exec, const Step& step, const std::vector<std::int32_t>& token_map) {
  n_rows_ = step.rows();
  require(n_rows_ <= max_rows_, ExitCode::internal, "step: {} rows, at most {} fit", n_rows_, max_rows_);
  check_sequences(step);
  tables_.clear();
  build_rows(step);
  build_layers();
  check_windows(step);
  build_sources(step);
  build_engram(step, token_map);
  tables_.upload(exec);
}

// Two chunks of one sequence would take the same positions.
void StepPlan::check_sequences(const Step& step) {
  std::vector<const Sequence*> sequences;
  for (const SequenceChunk& chunk : step.chunks) sequences.push_back(chunk.sequence);
  std::sort(sequences.begin(), sequences.end());
  require(std::adjacent_find(sequences.begin(), sequences.end()) == sequences.end(), ExitCode::internal,
          "step: a sequence stands in two of the {} chunks, one is wanted for all its rows", step.chunks.size());
}

void StepPlan::build_rows(const Step& step) {
  std::vector<std::int64_t> position, first_position;
  std::vector<std::int32_t> sequence, first_row, n_rows, tokens;
  std::vector<std::uint8_t> image;
  std::vector<kernels::BlockAddress> state;
  reach_.clear();
  for (const SequenceChunk& chunk : step.chunks) {
    const auto n = static_cast<std::int64_t>(chunk.tokens.size());
    require(
        chunk.reach.size() == chunk.tokens.size() && (chunk.image.empty() || chunk.image.size() == chunk.tokens.size()),
        ExitCode::internal, "step: a chunk of {} tokens has {} reaches and {} image marks", n, chunk.reach.size(),
        chunk.image.size());
    const std::int64_t start = chunk.sequence->length_;
    first_position.push_back(start);
    first_row.push_back(static_cast<std::int32_t>(tokens.size()));
    n_rows.push_back(static_cast<std::int32_t>(n));
    state.push_back({chunk.sequence->state_->data()});
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int32_t token = chunk.tokens[static_cast<std::size_t>(i)];
      require(token >= 0 && token < config_.vocab_size, ExitCode::internal,
              "step: token id {} is outside the vocabulary of {}", token, config_.vocab_size);
      tokens.push_back(token);
      position.push_back(start + i);
      sequence.push_back(static_cast<std::int32_t>(state.size() - 1));
      image.push_back(chunk.image.empty() ? std::uint8_t{0} : chunk.image[static_cast<std::size_t>(i)]);
      reach_.push_back(chunk.reach[static_cast<std::size_t>(i)]);
    }
  }
  tables_.add(tokens_, tokens);
  tables_.add(image_, image);
  tables_.add(step_rows_.position, position);
  tables_.add(step_rows_.sequence, sequence);
  tables_.add(sequences_.first_position, first_position);
  tables_.add(sequences_.first_row, first_row);
  tables_.add(sequences_.n_rows, n_rows);
  tables_.add(sequences_.state, state);
}

void StepPlan::build_layers() {
  std::vector<std::int32_t> active(static_cast<std::size_t>(n_rows_));
  for (std::size_t i = 0; i < active.size(); ++i) active[i] = static_cast<std::int32_t>(i);
  for (int l = 0; l < config_.n_layers; ++l) {
    LayerRows& rows = layers_[static_cast<std::size_t>(l)];
    rows = {};
    rows.active = static_cast<std::int64_t>(active.size());
    const bool all = rows.active == n_rows_;
    if (const int engram = config_.engram_index(l); engram >= 0) {
      std::vector<std::uint8_t>& marks = engram_active_[static_cast<std::size_t>(engram)];
      marks.assign(static_cast<std::size_t>(n_rows_), 0);
      for (const std::int32_t row : active) marks[static_cast<std::size_t>(row)] = 1;
    }
    std::vector<std::int32_t> window, window_of, full, full_of;
    std::vector<std::uint8_t> valid(static_cast<std::size_t>(n_rows_), 0);
    for (std::size_t i = 0; i < active.size(); ++i) {
      const std::int64_t reach = reach_[static_cast<std::size_t>(active[i])];
      if (reach <= window_limit(l)) {
        window.push_back(active[i]);
        window_of.push_back(static_cast<std::int32_t>(i));
        valid[static_cast<std::size_t>(active[i])] = 1;
      }
      if (reach <= full_limit(l)) {
        full.push_back(active[i]);
        full_of.push_back(static_cast<std::int32_t>(i));
      }
    }
    rows.window = static_cast<std::int64_t>(window.size());
    rows.full = static_cast<std::int64_t>(full.size());
    if (!all) tables_.add(rows.active_rows, active);
    if (rows.window != n_rows_) {
      tables_.add(rows.window_rows, window);
      tables_.add(rows.window_valid, valid);
    }
    if (rows.window != rows.active) tables_.add(rows.window_of_active, window_of);
    if (rows.full != n_rows_) tables_.add(rows.full_rows, full);
    if (rows.full != rows.active) tables_.add(rows.full_of_active, full_of);
    active = std::move(full);
  }
  wanted_rows_.clear();
  std::vector<std::int32_t> wanted_of;
  for (std::size_t i = 0; i < active.size(); ++i) {
    if (reach_[static_cast<std::size_t>(active[i])] == 0) {
      wanted_rows_.push_back(active[i]);
      wanted_of.push_back(static_cast<std::int32_t>(i));
    }
  }
  tables_.add(wanted_of_full_, wanted_of);
}

// Every window that a full row looks into must be whole: behind the step the ring has it from valid_from on, within the
// step the rows have it by the choice of the limits.
void StepPlan::check_windows(const Step& step) const {
  if (!cone_) return;
  for (int l = config_.cone_layer(); l < config_.n_layers; ++l) {
    std::size_t row = 0;
    for (const SequenceChunk& chunk : step.chunks) {
      const std::int64_t start = chunk.sequence->length_;
      std::int64_t valid_from = chunk.sequence->valid_from_[static_cast<std::size_t>(l)];
      for (std::size_t i = 0; i < chunk.tokens.size(); ++i, ++row) {
        const std::int64_t position = start + static_cast<std::int64_t>(i);
        if (reach_[row] > window_limit(l)) valid_from = position + 1;
        if (reach_[row] > full_limit(l)) continue;
        const std::int64_t oldest = std::max<std::int64_t>(0, position - config_.window_size + 1);
        require(oldest >= valid_from, ExitCode::internal,
                "step: layer {} at position {} needs window KV from {} on, the sequence has it from {}", l, position,
                oldest, valid_from);
      }
    }
  }
}

void StepPlan::build_sources(const Step& step) {
  for (int source = 0; source < layout_.n_sources(); ++source) {
    const auto s = static_cast<std::size_t>(source);
    const std::int64_t ratio = layout_.ratio(source);
    std::vector<kernels::BlockAddress> pages;
    std::vector<std::int32_t> first_page, sequence;
    std::vector<std::int64_t> group, positions;
    std::int64_t reachable = 0;
    for (std::size_t b = 0; b < step.chunks.size(); ++b) {
      const Sequence& q = *step.chunks[b].sequence;
      const std::int64_t end = q.length_ + static_cast<std::int64_t>(step.chunks[b].tokens.size());
      first_page.push_back(static_cast<std::int32_t>(pages.size()));
      for (const auto& page : q.pages_[s]) pages.push_back({page->data()});
      for (std::int64_t j = q.length_ / ratio; j < end / ratio; ++j) {
        sequence.push_back(static_cast<std::int32_t>(b));
        group.push_back(j);
        positions.push_back(j * ratio);
      }
      reachable = std::max(reachable, end / ratio);
    }
    tables_.add(pages_[s].pages, pages);
    tables_.add(pages_[s].first_page, first_page);
    tables_.add(groups_[s].sequence, sequence);
    tables_.add(groups_[s].group, group);
    tables_.add(group_positions_[s], positions);
    n_groups_[s] = static_cast<std::int64_t>(group.size());
    max_reachable_[s] = reachable;
  }
}

void StepPlan::build_engram(const Step& step, const std::vector<std::int32_t>& token_map) {
  if (!config_.engram_enabled()) return;
  const int max_ngram = config_.engram_max_ngram_size;
  const auto columns = static_cast<std::size_t>(config_.engram_columns());
  const std::int64_t pad = token_map[static_cast<std::size_t>(config_.engram_pad_id)];
  std::vector<std::vector<std::int64_t>> ids(engram_.layers.size());
  std::vector<std::int64_t> history(static_cast<std::size_t>(max_ngram));
  std::size_t row = 0;
  for (const SequenceChunk& chunk : step.chunks) {
    std::vector<std::int64_t> seen = chunk.sequence->recent_;  // compressed, newest last
    for (std::size_t i = 0; i < chunk.tokens.size(); ++i, ++row) {
      const bool dead = !chunk.image.empty() && chunk.image[i] != 0;
      seen.push_back(dead ? Sequence::kDead : token_map[static_cast<std::size_t>(chunk.tokens[i])]);
      bool blocked = false;
      for (int back = 0; back < max_ngram; ++back) {
        const auto at = static_cast<std::int64_t>(seen.size()) - 1 - back;
        blocked = blocked || at < 0 || seen[static_cast<std::size_t>(at)] == Sequence::kDead;
        history[static_cast<std::size_t>(back)] = blocked ? pad : seen[static_cast<std::size_t>(at)];
      }
      for (std::size_t e = 0; e < ids.size(); ++e) {
        if (engram_active_[e][row] == 0) continue;
        const config::EngramLayout::Layer& layer = engram_.layers[e];
        ids[e].resize(ids[e].size() + columns);
        kernels::engram_hash(history.data(), layer.multipliers.data(), layer.primes.data(), layer.offsets.data(),
                             max_ngram, config_.engram_n_heads, ids[e].data() + ids[e].size() - columns);
      }
    }
  }
  for (std::size_t e = 0; e < ids.size(); ++e) {
    tables_.add(engram_ids_[e], columns, ids[e]);
  }
}

void StepPlan::commit(const Step& step, const std::vector<std::int32_t>& token_map) const {
  const auto keep = static_cast<std::size_t>(std::max(config_.engram_max_ngram_size - 1, 0));
  std::size_t row = 0;
  for (const SequenceChunk& chunk : step.chunks) {
    Sequence& sequence = *chunk.sequence;
    for (std::size_t i = 0; i < chunk.tokens.size(); ++i, ++row) {
      if (!token_map.empty()) {
        const bool dead = !chunk.image.empty() && chunk.image[i] != 0;
        sequence.recent_.push_back(dead ? Sequence::kDead : token_map[static_cast<std::size_t>(chunk.tokens[i])]);
      }
      const std::int64_t position = sequence.length_ + static_cast<std::int64_t>(i);
      for (int l = std::max(config_.cone_layer(), 0); cone_ && l < config_.n_layers; ++l) {
        if (reach_[row] > window_limit(l)) sequence.valid_from_[static_cast<std::size_t>(l)] = position + 1;
      }
    }
    sequence.length_ += static_cast<std::int64_t>(chunk.tokens.size());
    if (sequence.recent_.size() > keep)
      sequence.recent_.erase(sequence.recent_.begin(), sequence.recent_.end() - static_cast<std::ptrdiff_t>(keep));
  }
}

}  // namespace bathys::model
