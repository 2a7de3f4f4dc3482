// SPDX-License-Identifier: Apache-2.0
#include "catalog/synthetic.hpp"

#include "catalog/tensor_table.hpp"
#include "config/model_config.hpp"
#include "core/error.hpp"
#include "numerics/bf16.hpp"
#include "numerics/formats.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::catalog {
namespace {

config::ModelConfig read_config(const std::string& file) {
  std::ifstream stream(std::string(BATHYS_TEST_DATA) + "/../inputs/models/" + file);
  const std::string text{std::istreambuf_iterator<char>(stream), {}};
  return config::read_model_config(text, file);
}

// The mid model and its table by name.
class Mid : public testing::Test {
 protected:
  Mid() {
    for (TensorSpec& spec : tensor_table(config_)) table_.emplace(spec.name, std::move(spec));
  }
  [[nodiscard]] std::vector<std::byte> bytes_of(const std::string& name) const {
    std::vector<std::byte> bytes(static_cast<std::size_t>(table_.at(name).bytes()));
    model_.read(name, 0, bytes);
    return bytes;
  }
  [[nodiscard]] std::vector<double> values_of(const std::string& name) const;

  config::ModelConfig config_ = read_config("mid.json");
  SyntheticModel model_{config_, 7};
  std::map<std::string, TensorSpec> table_;
};

std::vector<double> Mid::values_of(const std::string& name) const {
  const TensorSpec& spec = table_.at(name);
  const std::vector<std::byte> bytes = bytes_of(name);
  const std::vector<std::byte> scales = spec.scale.empty() ? std::vector<std::byte>() : bytes_of(spec.scale);
  const auto columns = static_cast<std::size_t>(spec.logical_shape().back());
  std::vector<double> values(static_cast<std::size_t>(spec.elements()) * (spec.dtype == Dtype::i8 ? 2 : 1));
  for (std::size_t i = 0; i < values.size(); ++i) {
    float value = 0;
    if (spec.dtype == Dtype::f32) std::memcpy(&value, bytes.data() + 4 * i, 4);
    if (spec.dtype == Dtype::bf16) {
      numerics::bf16 stored;
      std::memcpy(&stored.bits, bytes.data() + 2 * i, 2);
      value = static_cast<float>(stored);
    }
    if (spec.dtype == Dtype::f8_e4m3) value = numerics::e4m3_value(std::to_integer<std::uint8_t>(bytes[i]));
    if (spec.dtype == Dtype::i8) {
      const auto pair = std::to_integer<unsigned>(bytes[i / 2]);
      value = numerics::e2m1_value(static_cast<std::uint8_t>(i % 2 == 0 ? pair & 15U : pair >> 4U));
    }
    if (!scales.empty()) {
      const std::size_t row = i / columns / static_cast<std::size_t>(spec.block[0]);
      const std::size_t column = i % columns / static_cast<std::size_t>(spec.block[1]);
      const std::size_t grid = columns / static_cast<std::size_t>(spec.block[1]);
      value *= numerics::e8m0_value(std::to_integer<std::uint8_t>(scales[row * grid + column]));
    }
    values[i] = static_cast<double>(value);
  }
  return values;
}

Statistics measure(const std::vector<double>& values) {
  const auto n = static_cast<double>(values.size());
  double sum = 0;
  for (const double v : values) sum += v;
  double squares = 0;
  for (const double v : values) squares += (v - sum / n) * (v - sum / n);
  return {sum / n, std::sqrt(squares / n)};
}

TEST_F(Mid, EveryPieceHasTheSameBytesWhereverItBeginsAndEnds) {
  for (const std::string name : {"layers.0.ffn.experts.3.w2.weight", "layers.0.attn.wq_b.weight", "layers.0.hc_attn_fn",
                                 "layers.0.attn.wq_b.scale", "layers.0.attn_norm.weight"}) {
    const std::vector<std::byte> whole = bytes_of(name);
    std::vector<std::byte> pieces(whole.size());
    // From the end, in lengths that no block of the generator divides.
    std::size_t end = whole.size();
    for (std::size_t length = 1; end > 0; length = length * 3 + 4) {
      const std::size_t begin = end - std::min(end, length);
      model_.read(name, begin, std::span(pieces).subspan(begin, end - begin));
      end = begin;
    }
    EXPECT_EQ(pieces, whole) << name;
  }
}

TEST_F(Mid, TensorsAndSeedsAreUnrelated) {
  EXPECT_NE(bytes_of("layers.0.ffn.experts.0.w1.weight"), bytes_of("layers.0.ffn.experts.1.w1.weight"));
  EXPECT_NE(bytes_of("layers.0.attn.wkv.weight"), bytes_of("layers.1.attn.wkv.weight"));
  const SyntheticModel other(config_, 8);
  std::vector<std::byte> bytes(64);
  std::vector<std::byte> same(64);
  other.read("head.weight", 0, bytes);
  model_.read("head.weight", 0, same);
  EXPECT_NE(bytes, same);
}

TEST_F(Mid, MeansAndDeviationsAreThoseOfTheReleasedWeights) {
  const auto fan = [](double multiple, double fan_in) { return multiple / std::sqrt(fan_in); };
  const std::map<std::string, Statistics> wanted = {
      {"embed.weight", {0, 0.12}},
      {"layers.1.engram.embed.weight", {0, 0.12}},
      {"layers.0.attn_norm.weight", {0.025, 0.0025}},
      {"layers.0.ffn_norm.weight", {0.2, 0.02}},
      {"layers.0.attn.q_norm.weight", {0.97, 0.097}},
      {"layers.0.attn.wq_a.weight", {0, fan(1.6, 1024)}},
      {"layers.0.attn.wq_b.weight", {0, fan(0.95, 256)}},
      {"layers.0.attn.wkv.weight", {0, fan(1.8, 1024)}},
      {"layers.0.attn.wo_a.weight", {0, fan(1.6, 256)}},
      {"layers.0.attn.wo_b.weight", {0, fan(1.9, 2048)}},
      {"layers.0.ffn.gate.weight", {0, fan(2.9, 1024)}},
      {"layers.0.ffn.experts.0.w1.weight", {0, fan(1.5, 1024)}},
      {"layers.0.ffn.experts.0.w2.weight", {0, fan(1.05, 512)}},
      {"layers.0.ffn.shared_experts.w3.weight", {0, fan(1.5, 1024)}},
      {"head.weight", {0, fan(1.0, 1024)}},
      {"layers.0.hc_attn_fn", {0, fan(1.0, 4096)}},
  };
  for (const auto& [name, statistics] : wanted) {
    const std::vector<double> values = values_of(name);
    const Statistics found = measure(values);
    // A mean varies by deviation / sqrt(n), a deviation less.  Two scales mixed at random over n blocks change it by up
    // to 0.375 / sqrt(n); grids and the finite tables may take the 1 % that is left.
    const TensorSpec& spec = table_.at(name);
    const double error = 4 * statistics.deviation / std::sqrt(static_cast<double>(values.size()));
    const auto blocks = static_cast<double>(spec.scale.empty() ? 0 : table_.at(spec.scale).elements());
    const double mixing = blocks > 0 ? 4 * 0.375 / std::sqrt(blocks) : 0;
    EXPECT_NEAR(found.mean, statistics.mean, error) << name;
    EXPECT_NEAR(found.deviation, statistics.deviation, error + (0.01 + mixing) * statistics.deviation) << name;
  }
}

TEST_F(Mid, NoCodeIsNanAndNoValueInfinite) {
  std::vector<std::byte> bytes(std::size_t{1} << 16);
  for (const auto& [name, spec] : table_) {
    const auto part = std::span(bytes).first(std::min(bytes.size(), static_cast<std::size_t>(spec.bytes())));
    if (spec.expert > 0) continue;
    model_.read(name, 0, part);
    for (std::size_t i = 0; i < part.size(); ++i) {
      const auto code = std::to_integer<unsigned>(part[i]);
      const std::size_t last = static_cast<std::size_t>(element_bytes(spec.dtype)) - 1;
      const bool good = spec.dtype == Dtype::f8_e4m3   ? (code & 0x7fU) != 0x7fU
                        : spec.dtype == Dtype::f8_e8m0 ? code >= 127 - 30 && code <= 127
                        : last > 0 && i % (last + 1) == last
                            ? (code & 0x7fU) < 0x42U  // sign and upper exponent bits: far from infinity
                            : true;
      ASSERT_TRUE(good) << name << " byte " << i << " is " << code;
    }
  }
}

// A change of any byte is a new kSyntheticVersion: models made by two builds carry one name otherwise.
TEST_F(Mid, TheBytesOfThisVersionAreThese) {
  ASSERT_EQ(kSyntheticVersion, 1);
  const auto first = [&](const std::string& name, std::uint64_t offset) {
    std::vector<std::byte> bytes(8);
    model_.read(name, offset, bytes);
    std::string hex;
    for (const std::byte byte : bytes) hex += fmt::format("{:02x}", std::to_integer<unsigned>(byte));
    return hex;
  };
  EXPECT_EQ(first("embed.weight", 0), "71be913d28be3e3e");
  EXPECT_EQ(first("layers.0.hc_attn_fn", 4), "bca48fbb3476ce3b");
  EXPECT_EQ(first("layers.0.attn.wq_b.weight", 17), "f7ec64ec64696a64");
  EXPECT_EQ(first("layers.0.attn.wq_b.scale", 0), "7474747474747474");
  EXPECT_EQ(first("layers.0.ffn.experts.31.w1.weight", 1000), "6e06a9325b93e3e8");
}

TEST(Synthetic, TheEndOfATableOf98GigabytesIsAsNearAsItsBegin) {
  const config::ModelConfig config = read_config("released.json");
  const SyntheticModel model(config, 0);
  const std::uint64_t bytes = std::uint64_t{384016682} * 256;
  std::vector<std::byte> begin(256);
  std::vector<std::byte> end(256);
  model.read("layers.14.engram.embed.weight", 0, begin);
  model.read("layers.14.engram.embed.weight", bytes - end.size(), end);
  EXPECT_NE(begin, end);
  // 2^32 blocks further the counter's low word is the same.
  std::vector<std::byte> far(256);
  model.read("layers.14.engram.embed.weight", std::uint64_t{16} << 32, far);
  EXPECT_NE(begin, far);
  EXPECT_THROW(model.read("layers.14.engram.embed.weight", bytes - 255, end), Error);
  EXPECT_THROW(model.read("layers.99.attn.wkv.weight", 0, end), Error);
}

}  // namespace
}  // namespace bathys::catalog
