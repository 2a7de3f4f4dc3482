// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "catalog/tensor_table.hpp"
#include "config/model_config.hpp"

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <tuple>
#include <unordered_map>

namespace bathys::catalog {

// Changes whenever the bytes of any synthetic tensor do.
inline constexpr int kSyntheticVersion = 1;

// Mean and standard deviation of a tensor's values; of a quantized weight, after its scales.
struct Statistics {
  double mean = 0;
  double deviation = 1;
};

// What the values of a tensor look like in a trained model: measured on the released weights where known (embedding,
// gains of norms, linears by name), else what keeps activations of order one.  `spec` is no scale tensor.
[[nodiscard]] Statistics statistics_of(const TensorSpec& spec);

// The tensors of a model that nobody trained, of any config: normally distributed values with the statistics above,
// rounded to the tensor's format.  Every byte is a function of the seed, the tensor's name and the byte's position
// (Philox4x32-10), so that any range can be made anywhere, in any order, by anyone: nothing is stored, and a table of
// 98 GB is no different from a gain.
//   E4M3   256 equally likely codes of a normal distribution; never NaN
//   E2M1   all 16 codes equally likely, which is close to a normal distribution on this grid
//   E8M0   two neighbouring powers of two, mixed so that the scaled weights have the wanted deviation
//   bf16, float32   4096 equally likely values
class SyntheticModel {
 public:
  SyntheticModel(const config::ModelConfig& config, std::uint64_t seed);
  SyntheticModel(SyntheticModel&&) noexcept;
  SyntheticModel& operator=(SyntheticModel&&) noexcept;
  ~SyntheticModel();

  // Fills `out` with the bytes of tensor `name` from `offset` on.  May run in many threads.
  //   throws Error(internal) for a tensor or range that the config's tensor table does not have
  void read(const std::string& name, std::uint64_t offset, std::span<std::byte> out) const;

  [[nodiscard]] std::uint64_t seed() const { return seed_; }

 private:
  struct Code;  // random bytes to bytes of a tensor
  struct Recipe {
    std::uint64_t key = 0;
    std::uint64_t bytes = 0;
    const Code* code = nullptr;
  };
  using CodeKey = std::tuple<Dtype, double, double>;
  void add(const TensorSpec& spec, const Statistics& statistics);
  const Code* code_for(Dtype dtype, const Statistics& statistics);

  std::uint64_t seed_;
  std::map<CodeKey, std::unique_ptr<const Code>> codes_;  // shared by tensors that look alike
  std::unordered_map<std::string, Recipe> recipes_;
};

}  // namespace bathys::catalog
