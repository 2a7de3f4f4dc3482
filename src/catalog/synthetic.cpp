// SPDX-License-Identifier: Apache-2.0
#include "catalog/synthetic.hpp"

#include "core/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/formats.hpp"
#include "numerics/maths.hpp"
#include "numerics/philox.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace bathys::catalog {
namespace {

static_assert(std::endian::native == std::endian::little, "checkpoints are little-endian, and so are these tensors");

constexpr double kGainSpread = 0.1;  // of a norm's gains, relative to their mean
// Deviation of E4M3 codes: a block of 1024 has its largest near 3 deviations, as after quantization to at most 448.
constexpr double kE4m3Deviation = 100;
constexpr std::size_t kValues = 4096;  // distinct values of a float tensor
constexpr std::size_t kBlockBytes = sizeof(numerics::PhiloxBlock);
constexpr std::size_t kChunkBlocks = 512;  // made at a time; stays in the first-level cache

enum class Shape { gain, absolute, by_fan_in };  // mean; deviation; deviation as multiple of fan_in^-1/2
struct Rule {
  std::string_view ending;  // of "." + name
  Shape shape;
  double value;
};

// The first that fits.  Numbers with two digits that are not round were measured on the released weights.
constexpr std::array kRules = {
    Rule{".attn_norm.weight", Shape::gain, 0.025},
    Rule{".ffn_norm.weight", Shape::gain, 0.2},
    Rule{".q_norm.weight", Shape::gain, 0.97},
    Rule{".kv_norm.weight", Shape::gain, 0.4},
    Rule{".compressor.norm.weight", Shape::gain, 0.6},
    Rule{".k_norm.weight", Shape::gain, 0.5},
    Rule{"norm.weight", Shape::gain, 1.0},
    Rule{"norm1.weight", Shape::gain, 1.0},
    Rule{"norm2.weight", Shape::gain, 1.0},
    Rule{".q_weight", Shape::gain, 1.0},
    Rule{".k_weight", Shape::gain, 1.0},
    Rule{".hc_attn_scale", Shape::gain, 0.3},
    Rule{".hc_ffn_scale", Shape::gain, 0.3},
    Rule{".hc_attn_base", Shape::absolute, 0.5},
    Rule{".hc_ffn_base", Shape::absolute, 0.5},
    Rule{".attn_sink", Shape::absolute, 1.0},
    Rule{".gate.bias", Shape::absolute, 0.05},
    Rule{".gate.bias_vl", Shape::absolute, 0.05},
    Rule{".bias", Shape::absolute, 0.02},
    Rule{".embed.weight", Shape::absolute, 0.12},
    Rule{".image_start", Shape::absolute, 0.12},
    Rule{".image_end", Shape::absolute, 0.12},
    Rule{".image_newline", Shape::absolute, 0.12},
    Rule{".wq_a.weight", Shape::by_fan_in, 1.6},
    Rule{".wq_b.weight", Shape::by_fan_in, 0.95},
    Rule{".wkv.weight", Shape::by_fan_in, 1.8},
    Rule{".wo_a.weight", Shape::by_fan_in, 1.6},
    Rule{".wo_b.weight", Shape::by_fan_in, 1.9},
    Rule{".gate.weight", Shape::by_fan_in, 2.9},
    Rule{".w1.weight", Shape::by_fan_in, 1.5},
    Rule{".w3.weight", Shape::by_fan_in, 1.5},
    Rule{".w2.weight", Shape::by_fan_in, 1.05},
};
constexpr Rule kAnyOther{"", Shape::by_fan_in, 1.0};

// The standard normal distribution, by own maths: the same bits on every machine.
// Density and distribution function at x >= 0; the series has positive terms alone.
double density(double x) { return numerics::exp_double(-0.5 * x * x) * 0.39894228040143267794; }
double distribution(double x) {
  double term = x;
  double sum = 0;
  for (double odd = 3; term > 1e-18 * sum; odd += 2) {
    sum += term;
    term *= x * x / odd;
  }
  return 0.5 + density(x) * sum;
}

// The quantiles (k + 1/2) / n of the standard normal distribution, ascending; n even.
std::vector<double> normal_quantiles(std::size_t n) {
  std::vector<double> quantiles(n);
  double x = 0;
  for (std::size_t k = n / 2; k < n; ++k) {
    const double p = (static_cast<double>(k) + 0.5) / static_cast<double>(n);
    // Right of 0 the function is concave: Newton's steps from the quantile before stay below the root and converge.
    for (int step = 0; step < 12; ++step) x += (p - distribution(x)) / density(x);
    quantiles[k] = x;
    quantiles[n - 1 - k] = -x;
  }
  return quantiles;
}

const std::vector<double>& value_quantiles() {
  static const std::vector<double> quantiles = normal_quantiles(kValues);
  return quantiles;
}

using ByteTable = std::array<std::uint8_t, 256>;

const ByteTable& e4m3_table() {
  static const ByteTable table = [] {
    ByteTable made{};
    const std::vector<double> quantiles = normal_quantiles(made.size());
    for (std::size_t i = 0; i < made.size(); ++i)
      made[i] = numerics::e4m3_code(static_cast<float>(kE4m3Deviation * quantiles[i]));
    return made;
  }();
  return table;
}

// Root mean square of the values that the codes of a quantized weight stand for.
double code_deviation(Dtype dtype) {
  double squares = 0;
  for (int i = 0; i < 256; ++i) {
    const auto byte = static_cast<std::uint8_t>(i);
    const float value =
        dtype == Dtype::i8 ? numerics::e2m1_value(byte & 15U) : numerics::e4m3_value(e4m3_table()[byte]);
    squares += static_cast<double>(value) * static_cast<double>(value);
  }
  return std::sqrt(squares / 256);
}

// Scales 2^e and 2^(e+1), so often each that their root mean square is `scale`.
ByteTable scale_table(double scale) {
  int exponent = 0;
  const double fraction = 2 * std::frexp(scale, &exponent);  // 1 .. 2
  --exponent;
  const auto n_high = static_cast<std::size_t>(std::lround(256 * (fraction * fraction - 1) / 3));
  ByteTable table{};
  for (std::size_t i = 0; i < table.size(); ++i)
    table[i] = static_cast<std::uint8_t>(127 + exponent + (i < n_high ? 1 : 0));
  return table;
}

void apply(std::monostate /*bytes as they are*/, std::span<std::byte> /*chunk*/) {}
void apply(const ByteTable& table, std::span<std::byte> chunk) {
  for (std::byte& byte : chunk) byte = std::byte{table[std::to_integer<std::size_t>(byte)]};
}
// The top bits of each random element choose its value.
template <class Element, class Random = std::conditional_t<sizeof(Element) == 2, std::uint16_t, std::uint32_t>>
void apply(const std::vector<Element>& values, std::span<std::byte> chunk) {
  constexpr int kShift = 8 * static_cast<int>(sizeof(Element)) - std::countr_zero(kValues);
  for (std::size_t at = 0; at < chunk.size(); at += sizeof(Element)) {
    Random random;
    std::memcpy(&random, chunk.data() + at, sizeof random);
    std::memcpy(chunk.data() + at, &values[static_cast<std::size_t>(random >> kShift)], sizeof(Element));
  }
}

// FNV-1a, which spreads names; Philox then mixes it with the seed.
std::uint64_t tensor_key(const std::string& name, std::uint64_t seed) {
  std::uint64_t hash = 0xcbf29ce484222325U;
  for (const char c : name) hash = (hash ^ static_cast<std::uint8_t>(c)) * 0x100000001b3U;
  const numerics::PhiloxBlock mixed =
      numerics::philox4x32({{static_cast<std::uint32_t>(hash), static_cast<std::uint32_t>(hash >> 32), 0, 0}},
                           static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
  return std::uint64_t{mixed.word[1]} << 32 | mixed.word[0];
}

void random_blocks(std::uint64_t key, std::uint64_t first, std::size_t count, std::byte* out) {
  const auto key0 = static_cast<std::uint32_t>(key);
  const auto key1 = static_cast<std::uint32_t>(key >> 32);
  for (std::size_t i = 0; i < count; ++i) {
    const std::uint64_t number = first + i;
    const numerics::PhiloxBlock block = numerics::philox4x32(
        {{static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), 0, 0}}, key0, key1);
    std::memcpy(out + i * kBlockBytes, &block, kBlockBytes);
  }
}

}  // namespace

Statistics statistics_of(const TensorSpec& spec) {
  const std::string name = "." + spec.name;
  const auto fits = [&](const Rule& rule) { return std::string_view(name).ends_with(rule.ending); };
  const auto* const found = std::find_if(kRules.begin(), kRules.end(), fits);
  // The vision tower was not measured: its linears share names with others by chance.
  const bool unknown = found == kRules.end() || (spec.part == Part::vision && found->shape == Shape::by_fan_in);
  const Rule& rule = unknown ? kAnyOther : *found;
  switch (rule.shape) {
    case Shape::gain:
      return {rule.value, kGainSpread * rule.value};
    case Shape::absolute:
      return {0, rule.value};
    case Shape::by_fan_in:
      break;
  }
  return {0, rule.value / std::sqrt(static_cast<double>(spec.logical_shape().back()))};
}

struct SyntheticModel::Code {
  std::variant<std::monostate, ByteTable, std::vector<std::uint16_t>, std::vector<float>> table;
};

SyntheticModel::SyntheticModel(const config::ModelConfig& config, std::uint64_t seed) : seed_(seed) {
  const std::vector<TensorSpec> table = tensor_table(config);
  const TensorSpec* scale = nullptr;  // stands right before its weight
  for (const TensorSpec& spec : table) {
    if (spec.dtype == Dtype::f8_e8m0) {
      scale = &spec;
      continue;
    }
    const Statistics statistics = statistics_of(spec);
    add(spec, statistics);
    if (spec.scale.empty()) continue;
    require(scale != nullptr && scale->name == spec.scale, ExitCode::internal,
            "{}: its scales {} do not stand before it", spec.name, spec.scale);
    add(*scale, {0, statistics.deviation / code_deviation(spec.dtype)});
  }
}

SyntheticModel::SyntheticModel(SyntheticModel&&) noexcept = default;
SyntheticModel& SyntheticModel::operator=(SyntheticModel&&) noexcept = default;
SyntheticModel::~SyntheticModel() = default;

void SyntheticModel::add(const TensorSpec& spec, const Statistics& statistics) {
  recipes_[spec.name] = {tensor_key(spec.name, seed_), static_cast<std::uint64_t>(spec.bytes()),
                         code_for(spec.dtype, statistics)};
}

const SyntheticModel::Code* SyntheticModel::code_for(Dtype dtype, const Statistics& statistics) {
  const bool by_scale = dtype == Dtype::i8 || dtype == Dtype::f8_e4m3;  // the codes are the same for all weights
  const CodeKey key{dtype, by_scale ? 0 : statistics.mean, by_scale ? 0 : statistics.deviation};
  const auto found = codes_.find(key);
  if (found != codes_.end()) return found->second.get();
  Code code;
  const auto value = [&](double z) { return static_cast<float>(statistics.mean + statistics.deviation * z); };
  switch (dtype) {
    case Dtype::i8:
      break;
    case Dtype::f8_e4m3:
      code.table = e4m3_table();
      break;
    case Dtype::f8_e8m0:
      code.table = scale_table(statistics.deviation);
      break;
    case Dtype::bf16: {
      auto& values = code.table.emplace<std::vector<std::uint16_t>>();
      for (const double z : value_quantiles()) values.push_back(numerics::bf16_bits(value(z)));
      break;
    }
    case Dtype::f32: {
      auto& values = code.table.emplace<std::vector<float>>();
      for (const double z : value_quantiles()) values.push_back(value(z));
      break;
    }
  }
  return codes_.emplace(key, std::make_unique<const Code>(std::move(code))).first->second.get();
}

void SyntheticModel::read(const std::string& name, std::uint64_t offset, std::span<std::byte> out) const {
  const auto found = recipes_.find(name);
  require(found != recipes_.end(), ExitCode::internal, "the synthetic model has no tensor {}", name);
  const Recipe& recipe = found->second;
  require(offset <= recipe.bytes && out.size() <= recipe.bytes - offset, ExitCode::internal,
          "synthetic tensor {}: bytes {} to {} wanted, it has {}", name, offset, offset + out.size(), recipe.bytes);
  alignas(64) std::array<std::byte, kChunkBlocks * kBlockBytes> chunk{};
  while (!out.empty()) {
    const auto skipped = static_cast<std::size_t>(offset % kBlockBytes);
    const std::size_t blocks = std::min(kChunkBlocks, (skipped + out.size() + kBlockBytes - 1) / kBlockBytes);
    random_blocks(recipe.key, offset / kBlockBytes, blocks, chunk.data());
    std::visit([&](const auto& table) { apply(table, std::span(chunk).first(blocks * kBlockBytes)); },
               recipe.code->table);
    const std::size_t count = std::min(out.size(), blocks * kBlockBytes - skipped);
    std::memcpy(out.data(), chunk.data() + skipped, count);
    out = out.subspan(count);
    offset += count;
  }
}

}  // namespace bathys::catalog
