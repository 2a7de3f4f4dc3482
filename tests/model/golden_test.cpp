// SPDX-License-Identifier: Apache-2.0
// The model against the captured numbers of the public reference, with the tolerances of tests/golden/README.md.
#include "support/golden.hpp"

#include "model/support.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using kernels::bf16;
using kernels::Mat;

std::vector<std::int32_t> ids(const GoldenArray& a) { return {a.i.begin(), a.i.end()}; }

// Prompt and the generated ids that were fed back: what the captured rows are.
std::vector<std::int32_t> fed_tokens(const GoldenFile& file, const std::string& request) {
  std::vector<std::int32_t> tokens = ids(file.array(request + "/prompt_ids"));
  const std::vector<std::int32_t> generated = ids(file.array(request + "/generated_ids"));
  tokens.insert(tokens.end(), generated.begin(), generated.end() - 1);
  return tokens;
}

std::vector<std::uint8_t> image_marks(const GoldenFile& file, const std::string& request, std::size_t rows) {
  std::vector<std::uint8_t> marks(rows, 0);
  if (!file.has(request + "/token_types")) return marks;
  const GoldenArray types = file.array(request + "/token_types");
  for (std::size_t t = 0; t < types.i.size(); ++t) marks[t] = types.i[t] >= 0 ? 1 : 0;
  return marks;
}

int bf16_step(float v) {
  const auto bits = static_cast<int>(std::bit_cast<std::uint32_t>(v) >> 16);
  return (bits & 0x8000) != 0 ? -(bits & 0x7fff) : bits;
}

// Feeds every layer the captured input of all rows and compares what it makes of it.
class LayerCheck : public model::Observer {
 public:
  LayerCheck(const GoldenFile& file, std::string request, const config::ModelConfig& config)
      : file_(file), request_(std::move(request)), config_(config) {}

  void layer_input(int layer, const Mat<bf16>& h, const Mat<float>& pre) override {
    const bool engram = config_.engram_index(layer) >= 0;
    const GoldenArray stream = file_.array(path(layer, engram ? "h_before_engram" : "h_in")),
                      mix = file_.array(path(layer, "pre_in"));
    for (std::size_t t = 0; t < h.extent(0); ++t) {
      for (std::size_t k = 0; k < h.extent(1); ++k) h(t, k) = bf16(stream.f[t * h.extent(1) + k]);
      for (std::size_t k = 0; k < pre.extent(1); ++k) pre(t, k) = mix.f[t * pre.extent(1) + k];
    }
  }
  void tensor(const char* name, int layer, const Mat<const bf16>& value) override {
    std::vector<float> got;
    for (std::size_t t = 0; t < value.extent(0); ++t) {
      for (std::size_t k = 0; k < value.extent(1); ++k) got.push_back(static_cast<float>(value(t, k)));
    }
    compare(name, layer, got, value.extent(0));
  }
  void tensor(const char* name, int layer, const Mat<const float>& value) override {
    if (std::string(name) == "index_score") return;  // rows have no common width; the choice is compared
    std::vector<float> got;
    for (std::size_t t = 0; t < value.extent(0); ++t) {
      for (std::size_t k = 0; k < value.extent(1); ++k) got.push_back(value(t, k));
    }
    compare(name, layer, got, value.extent(0));
  }
  void tensor(const char* name, int layer, const Mat<const std::int32_t>& value) override {
    std::vector<std::int64_t> got;
    for (std::size_t t = 0; t < value.extent(0); ++t) {
      for (std::size_t k = 0; k < value.extent(1); ++k) got.push_back(value(t, k));
    }
    if (std::string(name) == "candidate_blocks") {
      compare_candidates(layer, got, value.extent(0), value.extent(1));
    } else {
      compare_rows(name, layer, got, value.extent(0));
    }
  }
  void tensor(const char* name, int layer, const Mat<const std::int64_t>& value) override {
    std::vector<std::int64_t> got(value.data(), value.data() + value.size());
    ++compared[name];
    EXPECT_EQ(got, file_.array(path(layer, name)).i) << path(layer, name);  // row ids: exact
  }

  std::map<std::string, int> compared;

 private:
  [[nodiscard]] std::string path(int layer, const std::string& name) const {
    if (layer < 0 || layer >= config_.n_layers) return request_ + "/capture/" + name;
    return request_ + "/capture/layer" + (layer < 10 ? "0" : "") + std::to_string(layer) + "/" + name;
  }

  // Rule 2: leave out the worst max(2, 5%) rows; in the others at most max(1%, 3 flips) of the elements off by more
  // than one bf16 step, and rms difference <= 0.002 rms + 4 layer_noise_rms.
  void compare(const std::string& name, int layer, const std::vector<float>& got, std::size_t n_rows) {
    // The embedding's image rows come from the tower; what is fed into layer 0 has them.
    if (layer < 0 || layer >= config_.n_layers || !file_.has(path(layer, name))) return;
    const GoldenArray want = file_.array(path(layer, name));
    ASSERT_EQ(got.size(), want.f.size()) << path(layer, name);
    ++compared[name];
    const std::size_t width = got.size() / n_rows;
    std::vector<double> square(n_rows, 0);
    std::vector<std::size_t> off(n_rows, 0);
    for (std::size_t n = 0; n < got.size(); ++n) {
      const double d = double(got[n]) - double(want.f[n]);
      square[n / width] += std::isfinite(d) ? d * d : 1e30;
      off[n / width] += std::abs(bf16_step(got[n]) - bf16_step(want.f[n])) > 1 ? 1 : 0;
    }
    std::vector<std::size_t> order(n_rows);
    std::iota(order.begin(), order.end(), 0U);
    std::sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return square[a] > square[b]; });
    const std::size_t skip = std::min(n_rows, std::max<std::size_t>(2, n_rows / 20));
    double sum = 0;
    std::size_t flips = 0;
    for (std::size_t i = skip; i < n_rows; ++i) {
      sum += square[order[i]];
      flips += off[order[i]];
    }
    const double elements = double(std::max<std::size_t>((n_rows - skip) * width, 1));
    EXPECT_LE(std::sqrt(sum / elements), 0.002 * want.attribute("rms") + 4 * want.attribute("layer_noise_rms"))
        << path(layer, name);
    EXPECT_LE(double(flips) / elements, std::max(0.01, 3 * want.attribute("layer_noise_flip"))) << path(layer, name);
  }

  // Choices: equal in all rows but max(1, 2%).
  void compare_rows(const std::string& name, int layer, const std::vector<std::int64_t>& got, std::size_t n_rows) {
    if (!file_.has(path(layer, name))) return;
    const GoldenArray want = file_.array(path(layer, name));
    ASSERT_EQ(got.size(), want.i.size()) << path(layer, name);
    ++compared[name];
    const std::size_t width = got.size() / n_rows;
    std::size_t differ = 0;
    for (std::size_t t = 0; t < n_rows; ++t)
      differ += std::equal(got.begin() + std::ptrdiff_t(t * width), got.begin() + std::ptrdiff_t((t + 1) * width),
                           want.i.begin() + std::ptrdiff_t(t * width))
                    ? 0
                    : 1;
    EXPECT_LE(differ, std::max<std::size_t>(1, n_rows / 50)) << path(layer, name);
  }

  // The golden mask marks reachable groups in surviving blocks.
  void compare_candidates(int layer, const std::vector<std::int64_t>& blocks, std::size_t n_rows, std::size_t width) {
    const GoldenArray want = file_.array(path(layer, "candidates"));
    ++compared["candidates"];
    const auto groups = static_cast<std::size_t>(want.shape[1]);
    const std::int64_t ratio = config_.ratio(layer);
    std::size_t differ = 0;
    for (std::size_t t = 0; t < n_rows; ++t) {
      bool equal = true;
      for (std::size_t j = 0; j < groups; ++j) {
        const std::int64_t block = static_cast<std::int64_t>(j) / config_.candidate_block_size;
        const auto begin = blocks.begin() + std::ptrdiff_t(t * width);
        const bool kept = std::find(begin, begin + std::ptrdiff_t(width), block) != begin + std::ptrdiff_t(width) &&
                          static_cast<std::int64_t>(j) < (static_cast<std::int64_t>(t) + 1) / ratio;
        equal = equal && kept == (want.i[t * groups + j] != 0);
      }
      differ += equal ? 0 : 1;
    }
    EXPECT_LE(differ, std::max<std::size_t>(1, n_rows / 50)) << path(layer, "candidates");
  }

  const GoldenFile& file_;
  std::string request_;
  const config::ModelConfig& config_;
};

model::ModelOptions everything() { return {.max_rows = 160, .head_rows = 16, .cone = false}; }

void check_layers(const std::string& name, const std::vector<std::string>& requests) {
  const auto model = load_test_model(name, everything());
  const GoldenFile file(name + "/golden.h5");
  for (const std::string& request : requests) {
    LayerCheck check(file, "requests/" + request, model->config());
    model->observe(&check);
    const std::vector<std::int32_t> tokens = fed_tokens(file, "requests/" + request);
    const std::vector<std::uint8_t> image = image_marks(file, "requests/" + request, tokens.size());
    logits_in_chunks(*model, tokens, {static_cast<std::int64_t>(tokens.size())}, image);
    model->observe(nullptr);
    for (const char* seen : {"attn_in", "attn_out", "moe_in", "moe_out", "h_out", "gate_idx", "gate_w", "hc_attn_comb",
                             "hc_ffn_comb", "pre_out", "groups", "index_q"}) {
      EXPECT_GT(check.compared[seen], 0) << name << "/" << request << ": nothing compared for " << seen;
    }
    if (model->config().engram_enabled()) {
      EXPECT_EQ(check.compared["engram_rows"], 2) << request;
      EXPECT_EQ(check.compared["engram_gate"], 2) << request;
      EXPECT_EQ(check.compared["candidates"], 1) << request;
    }
  }
}

TEST(GoldenLayers, OfBaseEqualTheCapturesWhenFedWithThem) { check_layers("base", {"r17", "r53"}); }
TEST(GoldenLayers, OfPlainEqualTheCapturesWhenFedWithThem) { check_layers("plain", {"r29"}); }
TEST(GoldenLayers, OfVisionWithImageRowsEqualTheCapturesWhenFedWithThem) { check_layers("vision", {"one", "two"}); }

// Rule 3: whole runs fed with generated_ids.
void check_whole_runs(const std::string& name, const std::vector<std::string>& requests) {
  const auto model = load_test_model(name, everything());
  const GoldenFile file(name + "/golden.h5");
  for (const std::string& request : requests) {
    const std::string path = "requests/" + request;
    const std::vector<std::int32_t> tokens = fed_tokens(file, path);
    const auto n_prompt = static_cast<std::int64_t>(file.array(path + "/prompt_ids").i.size());
    const auto got = logits_in_chunks(*model, tokens, {n_prompt, 1});  // prefill, then decode steps
    const GoldenArray want = file.array(path + "/logits"), margin = file.array(path + "/margin"),
                      noise = file.array(path + "/row_noise_max");
    ASSERT_EQ(got.size(), static_cast<std::size_t>(want.shape[0])) << path;
    const auto vocab = static_cast<std::size_t>(want.shape[1]);
    double square = 0;
    std::size_t sure = 0, wrong = 0;
    for (std::size_t t = 0; t < got.size(); ++t) {
      const float* row = want.f.data() + t * vocab;
      for (std::size_t v = 0; v < vocab; ++v)
        square += (double(got[t][v]) - double(row[v])) * (double(got[t][v]) - double(row[v]));
      if (margin.f[t] <= 3 * noise.f[t] + 0.3F) continue;
      ++sure;
      wrong +=
          std::max_element(got[t].begin(), got[t].end()) - got[t].begin() != std::max_element(row, row + vocab) - row
              ? 1
              : 0;
    }
    EXPECT_LE(std::sqrt(square / double(got.size() * vocab)),
              2 * want.attribute("noise_rms") + 0.02 * want.attribute("rms"))
        << path;
    EXPECT_LE(wrong, std::max<std::size_t>(1, sure / 20))
        << path << ": argmax of " << sure << " rows with a clear margin";
  }
}

TEST(GoldenRuns, OfBaseStayWithinTheMeasuredNoise) {
  check_whole_runs("base", {"r1", "r7", "r15", "r16", "r17", "r53", "r90"});
}
TEST(GoldenRuns, OfPlainStayWithinTheMeasuredNoise) { check_whole_runs("plain", {"r1", "r4", "r8", "r29", "r60"}); }
TEST(GoldenRuns, OfVisionsTextRequestStayWithinTheMeasuredNoise) { check_whole_runs("vision", {"t20"}); }

// Rule 4: free-running greedy text.
TEST(GoldenRuns, GreedyTextEqualsTheReferenceAsFarAsItIsSafe) {
  for (const std::string name : {"base", "plain"}) {
    const auto model = load_test_model(name, everything());
    const GoldenFile file(name + "/golden.h5");
    for (const std::string& request : file.members("requests")) {
      const std::string path = "requests/" + request;
      const auto safe = static_cast<std::size_t>(file.attribute(path, "greedy_safe_steps"));
      std::vector<std::int32_t> tokens = ids(file.array(path + "/prompt_ids"));
      const std::vector<std::int32_t> want = ids(file.array(path + "/generated_ids"));
      model::Sequence sequence = model->caches().make();
      std::vector<std::int32_t> drawn;
      for (std::size_t i = 0; i < safe; ++i) {
        model::Step step;
        const std::vector<std::int32_t> rows(tokens.begin() + std::ptrdiff_t(sequence.length()), tokens.end());
        std::vector<std::int64_t> reach(rows.size());
        for (std::size_t r = 0; r < rows.size(); ++r) reach[r] = static_cast<std::int64_t>(rows.size() - 1 - r);
        step.chunks.push_back({&sequence, rows, reach, {}});
        model->run(step);
        const model::HeadQuery query{.wanted_row = 0, .position = static_cast<std::int64_t>(tokens.size())};
        const auto answer = model->head({&query, 1});
        ASSERT_TRUE(answer[0].finite);
        drawn.push_back(static_cast<std::int32_t>(answer[0].token));
        tokens.push_back(drawn.back());
      }
      EXPECT_EQ(drawn, std::vector<std::int32_t>(want.begin(), want.begin() + std::ptrdiff_t(safe))) << path;
    }
  }
}

}  // namespace
}  // namespace bathys::test
