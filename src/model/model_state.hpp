// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "model/model.hpp"

#include <vector>

namespace bathys::model {

struct Model::State {
  State(const config::ModelConfig& config_in, ModelWeights weights_in, const parallel::RankGrid& grid_in,
        const ModelOptions& options_in);

  Exec exec;
  config::ModelConfig config;
  ModelWeights weights;
  const parallel::RankGrid& grid;
  ModelOptions options;
  CacheArena caches;
  StepPlan plan;
  GroupRows groups;
  Workspace work;
  kernels::Vec<const float> window_freqs, compressed_freqs;
  std::vector<std::int64_t> vocab_bytes;  // per rank, of one row of float32 logits
  Observer* observer = nullptr;
  std::function<void(int layer)> layer_begins;
  std::vector<LayerCounters> counters;

  // model.cpp
  Stream start(const StepContext& c);
  Stream run_layer(const StepContext& c, int layer, const Stream& stream);
  void finish(const StepContext& c, const Stream& stream);
  std::vector<RowFailure> failures(const Step& step);
  // head.cpp
  void logits_of(std::span<const HeadQuery> queries);
  std::vector<float> gather_logits(std::int64_t n);
  std::vector<std::int64_t> exp_sums(const std::vector<float>& max);
  std::vector<float> logits_of_tokens(const std::vector<std::int64_t>& token);
  std::vector<std::int64_t> draw(std::span<const HeadQuery> queries, const std::vector<bool>& has_nan,
                                 std::span<const float> rows);
  void answer(std::span<const HeadQuery> queries, std::span<HeadAnswer> answers);
};

// A host vector's device copy and back.
template <class T>
kernels::Vec<T> to_device(const char* label, const std::vector<T>& host) {
  kernels::Vec<T> device(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), host.size());
  Kokkos::deep_copy(device, Kokkos::View<const T*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
                                host.data(), host.size()));
  return device;
}
template <class V>
std::vector<typename V::non_const_value_type> to_host(const V& device) {
  std::vector<typename V::non_const_value_type> host(device.extent(0));
  Kokkos::deep_copy(
      Kokkos::View<typename V::non_const_value_type*, Kokkos::HostSpace, Kokkos::MemoryTraits<Kokkos::Unmanaged>>(
          host.data(), host.size()),
      device);
  return host;
}

}  // namespace bathys::model
