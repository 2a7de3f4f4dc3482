// SPDX-License-Identifier: Apache-2.0
// Jobs through the engine: the numbers of a job are those of the plain model, whatever shares its steps.
#include "engine/engine.hpp"

#include "core/error.hpp"
#include "model/support.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using engine::Engine;
using engine::EngineOptions;
using engine::GenerateJob;
using engine::JobResult;
using engine::ScoreJob;

std::map<std::int64_t, JobResult> run_all(Engine& engine) {
  std::map<std::int64_t, JobResult> results;
  while (engine.step()) {
    for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
  }
  for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
  EXPECT_EQ(engine.pending(), 0);
  return results;
}

std::vector<std::int32_t> joined(std::vector<std::int32_t> a, const std::vector<std::int32_t>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

// A mix of score jobs with and without a common context, and generations at temperature 0 and 1 with repeats.
void submit_mix(Engine& engine, std::int64_t vocab) {
  for (std::int64_t tag = 0; tag < 6; ++tag) {
    ScoreJob job{.tag = tag, .sequences = {}};
    const auto context = random_tokens(5 + 23 * tag, vocab, 10 + static_cast<std::uint64_t>(tag));
    for (std::uint64_t c = 0; c < 4; ++c) {
      job.sequences.push_back({joined(context, random_tokens(1 + static_cast<std::int64_t>(c) * 3, vocab, c)),
                               static_cast<std::int64_t>(context.size())});
    }
    engine.submit(std::move(job));
  }
  for (std::int64_t tag = 6; tag < 9; ++tag) engine.submit(ScoreJob{tag, {{random_tokens(90 + tag, vocab, 77), 1}}});
  for (std::int64_t tag = 9; tag < 13; ++tag) {
    GenerateJob job;
    job.tag = tag;
    job.prompt = random_tokens(1 + 13 * (tag - 9), vocab, 40);
    job.max_new_tokens = 12;
    job.temperature = tag % 2 == 0 ? 1.0F : 0.0F;
    job.top_p = tag == 12 ? 0.5 : 1.0;
    job.key = 0x1234567 + static_cast<std::uint64_t>(tag);
    job.repeats = {0, 1, 5};
    job.top_logprobs = tag == 10 ? 3 : 0;
    engine.submit(std::move(job));
  }
}

std::string text_of(const std::map<std::int64_t, JobResult>& results) {
  std::string out;
  for (const auto& [tag, r] : results) {
    out += fmt::format("{}: {}", tag, r.failure ? r.failure->code : "");
    for (const auto& sequence : r.scores) {
      for (const auto& s : sequence)
        out += fmt::format(" {:08x}{}", std::bit_cast<std::uint32_t>(s.logprob), s.greedy ? "g" : "");
    }
    for (const auto& g : r.generated) {
      out += fmt::format(" r{} f{}", g.repeat, static_cast<int>(g.finish));
      for (const auto& t : g.tokens) {
        out += fmt::format(" {}={:08x}", t.id, std::bit_cast<std::uint32_t>(t.logprob));
        for (const auto& [id, logprob] : t.top)
          out += fmt::format(",{}:{:08x}", id, std::bit_cast<std::uint32_t>(logprob));
      }
    }
    out += '\n';
  }
  return out;
}

std::string run_mix(const EngineOptions& options, bool cone) {
  const auto model = load_test_model("nano", {.max_rows = 4096, .head_rows = 8, .cone = cone});
  Engine engine(*model, nullptr, options);
  submit_mix(engine, model->config().vocab_size);
  return text_of(run_all(engine));
}

TEST(Engine, GivesTheSameBitsForEveryRowBudgetSharingAndCone) {
  const std::string reference = run_mix({.row_budget = 4096, .max_sequences = 64, .prefix_sharing = false}, false);
  EXPECT_EQ(std::count(reference.begin(), reference.end(), '\n'), 13);
  EXPECT_EQ(run_mix({.row_budget = 4096, .max_sequences = 64, .prefix_sharing = true}, true), reference);
  EXPECT_EQ(run_mix({.row_budget = 64, .max_sequences = 5, .prefix_sharing = true}, true), reference);
  EXPECT_EQ(run_mix({.row_budget = 7, .max_sequences = 2, .prefix_sharing = true}, true), reference);
  EXPECT_EQ(run_mix({.row_budget = 33, .max_sequences = 3, .prefix_sharing = false}, true), reference);
  EXPECT_EQ(run_mix({.row_budget = 300, .max_sequences = 1, .prefix_sharing = true}, true), reference);
  if (full_tier()) {
    EXPECT_EQ(run_mix({.row_budget = 1, .max_sequences = 64, .prefix_sharing = true}, true), reference);
  }
}

TEST(Engine, ScoresAreLogSoftmaxOfThePlainModelsLogits) {
  const auto model = load_test_model("nano", {.max_rows = 256, .head_rows = 5, .cone = true});
  const auto tokens = random_tokens(60, model->config().vocab_size, 3);
  Engine engine(*model, nullptr, {.row_budget = 17});
  engine.submit(ScoreJob{0, {{tokens, 20}}});
  const JobResult result = run_all(engine).at(0);
  ASSERT_EQ(result.scores.at(0).size(), 40U);
  const auto plain = load_test_model("nano", {.max_rows = 256, .head_rows = 5, .cone = false});
  const auto logits = logits_in_chunks(*plain, tokens, {60});
  for (std::size_t i = 0; i < 40; ++i) {
    const std::vector<float>& row = logits[19 + i];
    const auto target = static_cast<std::size_t>(tokens[20 + i]);
    const double max = *std::max_element(row.begin(), row.end());
    double sum = 0;
    for (const float l : row) sum += std::exp(double(l) - max);
    EXPECT_NEAR(result.scores[0][i].logprob, double(row[target]) - max - std::log(sum), 2e-6) << i;
    EXPECT_EQ(result.scores[0][i].greedy,
              std::max_element(row.begin(), row.end()) - row.begin() == static_cast<std::ptrdiff_t>(target))
        << i;
  }
}

TEST(Engine, SharesACommonContextAndSaysSo) {
  const auto model = load_test_model("nano", {.max_rows = 256});
  Engine engine(*model, nullptr, {.row_budget = 256});
  const auto context = random_tokens(100, model->config().vocab_size, 1);
  ScoreJob job{.tag = 7, .sequences = {}};
  for (std::uint64_t c = 0; c < 4; ++c)
    job.sequences.push_back({joined(context, random_tokens(3, model->config().vocab_size, c)), 100});
  engine.submit(std::move(job));
  const JobResult result = run_all(engine).at(7);
  EXPECT_EQ(
      result.computed_tokens,
      99 + 4 * 3);  // the context without its last row once, then that row and the continuation but its last token
  EXPECT_EQ(result.reused_tokens, 4 * 99);
}

// The most that caches reserved while a step ran.
class CacheWatch : public model::Observer {
 public:
  explicit CacheWatch(model::Model& model) : model_(model) { model.observe(this); }
  ~CacheWatch() override { model_.observe(nullptr); }
  CacheWatch(const CacheWatch&) = delete;
  CacheWatch& operator=(const CacheWatch&) = delete;
  void layer_input(int, const kernels::Mat<kernels::bf16>&, const kernels::Mat<float>&) override {
    peak_bytes = std::max(peak_bytes, model_.caches().reserved_bytes());
  }
  std::int64_t peak_bytes = 0;

 private:
  model::Model& model_;
};

// A family of jobs over a few-shot head of 150 tokens: three questions of 40, each asked by several jobs.
void submit_family(Engine& engine, std::int64_t vocab) {
  for (std::int64_t tag = 0; tag < 9; ++tag) {
    const auto head = random_tokens(150, vocab, 1);
    const auto question = joined(head, random_tokens(40, vocab, 50 + static_cast<std::uint64_t>(tag) / 3));
    if (tag % 3 == 2) {
      engine.submit(GenerateJob{.tag = tag,
                                .prompt = question,
                                .max_new_tokens = 6,
                                .temperature = 1,
                                .key = 3,
                                .repeats = {0, 1},
                                .stops = {}});
      continue;
    }
    ScoreJob job{.tag = tag, .sequences = {}};
    for (std::uint64_t c = 0; c < 3; ++c)
      job.sequences.push_back(
          {joined(question, random_tokens(4, vocab, c + 10 * static_cast<std::uint64_t>(tag))), 190 - tag % 3});
    engine.submit(std::move(job));
  }
}

TEST(Engine, HeadsThatNothingNeedsMakeRoomAtOnce) {
  const auto model = load_test_model("nano", {.max_rows = 512, .cone = true});
  const std::int64_t vocab = model->config().vocab_size;
  const std::int64_t bound = 2 * model->caches().bytes_for(400);
  Engine engine(*model, nullptr, {.row_budget = 512, .cache_bytes = bound});
  const CacheWatch watch(*model);
  for (std::int64_t tag = 0; tag < 12; ++tag) {  // six heads one after the other, each asked by two jobs
    const auto head = random_tokens(380, vocab, 100 + static_cast<std::uint64_t>(tag) / 2);
    engine.submit(ScoreJob{tag, {{joined(head, random_tokens(10, vocab, static_cast<std::uint64_t>(tag))), 381}}});
  }
  for (const auto& [tag, result] : run_all(engine)) EXPECT_FALSE(result.failure) << tag;
  EXPECT_LE(watch.peak_bytes, bound);
}

TEST(Engine, SharesBeginningsAcrossJobs) {
  const auto run = [](const EngineOptions& options, std::int64_t cache_sequences) {
    const auto model = load_test_model("nano", {.max_rows = 512, .cone = true});
    EngineOptions bounded = options;
    bounded.cache_bytes = cache_sequences * model->caches().bytes_for(200);
    Engine engine(*model, nullptr, bounded);
    const CacheWatch watch(*model);
    submit_family(engine, model->config().vocab_size);
    const auto results = run_all(engine);
    EXPECT_GT(watch.peak_bytes, 0);
    if (bounded.cache_bytes > 0) {
      EXPECT_LE(watch.peak_bytes, bounded.cache_bytes);
    }
    std::int64_t computed = 0;
    for (const auto& [tag, r] : results) computed += r.computed_tokens;
    return std::pair(text_of(results), computed);
  };
  const auto [reference, all_rows] = run({.row_budget = 512, .prefix_sharing = false}, 0);
  const auto [shared, rows] = run({.row_budget = 512}, 0);
  EXPECT_EQ(shared, reference);
  // The head once, each question once more; then what is each one's own.
  EXPECT_LE(rows, 150 + 3 * 40 + 6 * 3 * 6 + 3 * 2 * 8);
  EXPECT_GT(all_rows, 24 * 189);
  // However little room there is, the numbers are the same.
  for (const std::int64_t sequences : {1, 2, 3, 5}) {
    EXPECT_EQ(run({.row_budget = 64, .max_sequences = 4}, sequences).first, reference) << sequences;
    EXPECT_EQ(run({.row_budget = 512, .max_sequences = sequences}, 0).first, reference) << sequences;
  }
}

TEST(Engine, CountsTheRowsThatTheConeNeeds) {
  // One wanted row at the end of a context: the closed form of the cone, layer by layer.
  const auto model = load_test_model("nano", {.max_rows = 512, .cone = true});
  const config::ModelConfig& config = model->config();
  const std::int64_t n = full_tier() ? 4096 : 1024;
  Engine engine(*model, nullptr, {.row_budget = 512});
  engine.submit(ScoreJob{0, {{random_tokens(n + 1, config.vocab_size, 1), n}}});
  run_all(engine);
  for (int l = 0; l < config.n_layers; ++l) {
    const auto layer = static_cast<std::size_t>(l);
    const model::LayerCounters& computed = model->counters()[layer];
    const std::int64_t above = config.n_layers - 1 - l;
    const std::int64_t full = l < config.cone_layer() ? n : std::min(n, 1 + above * (config.window_size - 1));
    const std::int64_t window = l < config.cone_layer() ? n : std::min(n, 1 + (above + 1) * (config.window_size - 1));
    EXPECT_EQ(computed.full_rows, full) << l;
    EXPECT_EQ(computed.window_rows, window) << l;
    EXPECT_EQ(computed.source_rows, l == 2 || l == 5 ? n : 0) << l;
    EXPECT_EQ(engine.counters().needed[layer].full_rows, full) << l;
    EXPECT_EQ(engine.counters().needed[layer].window_rows, window) << l;
    EXPECT_EQ(engine.counters().needed[layer].source_rows, computed.source_rows) << l;
  }
}

TEST(Engine, GreedyDrawsAreTheArgmaxAndRepeatsOfThemAreEqual) {
  const auto model = load_test_model("nano", {.max_rows = 256});
  Engine engine(*model, nullptr, {.row_budget = 64});
  GenerateJob job;
  job.prompt = random_tokens(30, model->config().vocab_size, 9);
  job.max_new_tokens = 10;
  job.repeats = {0, 1};
  engine.submit(job);
  const JobResult result = run_all(engine).at(0);
  ASSERT_EQ(result.generated.size(), 2U);
  std::vector<std::int32_t> tokens = job.prompt;
  for (std::size_t i = 0; i < result.generated[0].tokens.size(); ++i) {
    const auto row = logits_in_chunks(*model, tokens, {64}).back();
    EXPECT_EQ(result.generated[0].tokens[i].id, std::max_element(row.begin(), row.end()) - row.begin()) << i;
    EXPECT_EQ(result.generated[1].tokens[i].id, result.generated[0].tokens[i].id) << i;
    tokens.push_back(result.generated[0].tokens[i].id);
  }
  EXPECT_TRUE(result.generated[0].finish == engine::Finish::eos || result.generated[0].tokens.size() == 10U);
}

TEST(Engine, SamplesDifferByKeyAndRepeatAndTinyTemperaturesAreGreedy) {
  const auto model = load_test_model("nano", {.max_rows = 256});
  auto draw = [&](float temperature, std::uint64_t key, std::int32_t repeat) {
    Engine engine(*model, nullptr, {.row_budget = 64});
    GenerateJob job;
    job.prompt = {0, 300, 301};
    job.max_new_tokens = 16;
    job.temperature = temperature;
    job.key = key;
    job.repeats = {repeat};
    engine.submit(job);
    std::vector<std::int32_t> out;
    const JobResult result = run_all(engine).at(0);
    for (const auto& t : result.generated.at(0).tokens) out.push_back(t.id);
    return out;
  };
  EXPECT_NE(draw(1, 1, 0), draw(1, 2, 0));
  EXPECT_NE(draw(1, 1, 0), draw(1, 1, 1));
  EXPECT_EQ(draw(1, 1, 0), draw(1, 1, 0));
  EXPECT_EQ(draw(1e-38F, 1, 0), draw(0, 5, 3));
  EXPECT_EQ(draw(-0.0F, 1, 0), draw(0, 5, 3));
}

TEST(Engine, StaysWithinItsCacheBytesAndTellsWhatCannotFit) {
  const auto model = load_test_model("nano", {.max_rows = 256});
  const std::int64_t vocab = model->config().vocab_size;
  const std::int64_t bound = 3 * model->caches().bytes_for(150);
  Engine engine(*model, nullptr, {.row_budget = 256, .cache_bytes = bound});
  for (std::int64_t tag = 0; tag < 12; ++tag) {
    ScoreJob job{.tag = tag, .sequences = {}};
    const auto context = random_tokens(100, vocab, static_cast<std::uint64_t>(tag));
    for (std::uint64_t c = 0; c < 3; ++c) job.sequences.push_back({joined(context, random_tokens(5, vocab, c)), 100});
    engine.submit(std::move(job));
  }
  engine.submit(ScoreJob{12, {{random_tokens(5000, vocab, 1), 4990}}});
  std::map<std::int64_t, JobResult> results;
  std::int64_t peak = 0;
  while (engine.step()) {
    peak = std::max(peak, model->caches().reserved_bytes());
    for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
  }
  for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
  EXPECT_LE(peak, bound);
  for (std::int64_t tag = 0; tag < 12; ++tag) EXPECT_FALSE(results.at(tag).failure) << tag;
  ASSERT_TRUE(results.at(12).failure);
  EXPECT_EQ(results.at(12).failure->code, "does_not_fit");
  EXPECT_EQ(results.at(12).failure->cache_bytes, model->caches().bytes_for(4999));
}

// Of many generations every sixth goes on, and what they hold lies scattered; short sequences come for which there is
// room only where that is packed.
TEST(Engine, PackingWhatIsScatteredMakesRoomAndChangesNothing) {
  const auto run = [](bool tight) {
    constexpr std::int64_t kGenerations = 24, kEnd = 40, kLimit = std::int64_t{2} << 20;
    const auto model = load_test_model("nano", {.max_rows = 256});
    model::CacheArena& caches = model->caches();
    const std::int64_t vocab = model->config().vocab_size;
    Engine engine(*model, nullptr, {.row_budget = 256, .cache_bytes = kLimit});
    for (std::int64_t tag = 0; tag < kGenerations; ++tag) {
      GenerateJob job;
      job.tag = tag;
      job.prompt = random_tokens(130, vocab, 7 + static_cast<std::uint64_t>(tag));
      job.max_new_tokens = tag % 6 == 0 ? 60 : 16;
      job.key = static_cast<std::uint64_t>(tag);
      job.temperature = 1;
      engine.submit(std::move(job));
    }
    std::map<std::int64_t, JobResult> results;
    const auto step = [&] {
      const bool more = engine.step();
      for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
      return more;
    };
    while (results.size() < 20 && step()) continue;
    EXPECT_FALSE(results.contains(18));  // it goes on
    // Room for one more, and in each pool for the part of a slab that stays free.
    const std::int64_t bound = caches.used_bytes() + 2 * kLimit / 64 + caches.bytes_for(5);
    EXPECT_GT(caches.reserved_bytes(), bound);
    if (tight) caches.limit(bound);
    for (std::int64_t tag = kGenerations; tag < kEnd; ++tag)
      engine.submit(ScoreJob{tag, {{random_tokens(6, vocab, static_cast<std::uint64_t>(tag)), 2}}});
    while (!results.contains(kEnd - 1) && step()) EXPECT_LE(caches.reserved_bytes(), tight ? bound : kLimit);
    EXPECT_FALSE(results.contains(18));
    while (step()) continue;
    EXPECT_EQ(results.size(), static_cast<std::size_t>(kEnd));
    return text_of(results);
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(Engine, KeepsABeginningWhereGivingItUpWouldNotMakeRoom) {
  const auto model = load_test_model("nano", {.max_rows = 1024});
  const std::int64_t vocab = model->config().vocab_size;
  const auto context = random_tokens(400, vocab, 1);
  const auto bytes = [&](std::int64_t length) { return model->caches().bytes_for(length); };
  // A long generation and the held beginning leave room for a short sequence, not for `large`, beginning or not; once
  // the generation has ended, large fits beside the beginning.
  const std::int64_t large = 900, running = 800;
  const std::int64_t bound = bytes(running + 100) + bytes(400) + bytes(100);
  ASSERT_GT(bytes(running) + bytes(large), bound);
  ASSERT_LT(bytes(400) + bytes(large), bound);
  Engine engine(*model, nullptr, {.row_budget = 1024, .cache_bytes = bound});
  GenerateJob generation;
  generation.tag = 0;
  generation.prompt = random_tokens(running - 40, vocab, 2);
  generation.max_new_tokens = 40;
  engine.submit(std::move(generation));
  const auto ask = [&](std::int64_t tag) {
    engine.submit(ScoreJob{tag, {{joined(context, random_tokens(5, vocab, static_cast<std::uint64_t>(tag))), 400}}});
  };
  std::map<std::int64_t, JobResult> results;
  const auto step_until = [&](std::int64_t tag) {
    bool more = true;
    while (more && !results.contains(tag)) {
      more = engine.step();
      for (JobResult& r : engine.take_finished()) results[r.tag] = std::move(r);
    }
  };
  ask(1);
  ask(2);
  step_until(2);
  ASSERT_TRUE(results.contains(2));
  ASSERT_FALSE(results.contains(0));  // it still runs
  engine.submit(ScoreJob{3, {{random_tokens(large, vocab, 3), large - 5}}});
  step_until(3);
  ask(4);
  step_until(4);
  ASSERT_TRUE(results.contains(4));
  EXPECT_FALSE(results.at(3).failure);
  EXPECT_EQ(results.at(4).reused_tokens, 399);  // all rows before the first wanted one: the beginning was still there
}

TEST(Engine, NeverHoldsMoreSequencesThanItMay) {
  const auto model = load_test_model("nano", {.max_rows = 2048});
  const std::int64_t vocab = model->config().vocab_size, one = model->caches().bytes_for(20);
  Engine engine(*model, nullptr, {.row_budget = 2048, .max_sequences = 6});
  for (std::int64_t tag = 0; tag < 20; ++tag) {
    ScoreJob job{.tag = tag, .sequences = {}};
    const auto context = random_tokens(12, vocab, static_cast<std::uint64_t>(tag));
    for (std::uint64_t c = 0; c < 4; ++c) job.sequences.push_back({joined(context, random_tokens(4, vocab, c)), 12});
    engine.submit(std::move(job));
  }
  std::size_t ended = 0;
  while (engine.step()) {
    EXPECT_LE(model->caches().used_bytes(), 6 * one);
    ended += engine.take_finished().size();
  }
  EXPECT_EQ(ended + engine.take_finished().size(), 20U);
}

// Overwrites the stream of one position with NaN: what a broken weight does to it.
class NanAt : public model::Observer {
 public:
  NanAt(std::int64_t rows_before, std::int64_t row) : skip_(rows_before), row_(row) {}
  void layer_input(int layer, const kernels::Mat<kernels::bf16>& h, const kernels::Mat<float>&) override {
    if (layer != 3) return;
    const auto n = static_cast<std::int64_t>(h.extent(0));
    const std::int64_t at = row_ - seen_;
    seen_ += n;
    if (seen_ - n < skip_ || at < 0 || at >= n) return;
    h(static_cast<std::size_t>(at), 0) = kernels::bf16(NAN);
    ++injected;
  }
  int injected = 0;

 private:
  std::int64_t skip_, row_, seen_ = 0;
};

// Overwrites the first row of the last layer's input, if all 600 rows are there.
class NanInTopLayer : public model::Observer {
 public:
  void layer_input(int layer, const kernels::Mat<kernels::bf16>& h, const kernels::Mat<float>&) override {
    if (layer != 7 || h.extent(0) != 600) return;
    h(0, 0) = kernels::bf16(NAN);
    ++injected;
  }
  int injected = 0;
};

TEST(Engine, ANonfiniteRowFailsItsOwnSequenceAndNoOther) {
  const auto model = load_test_model("nano", {.max_rows = 512, .cone = false});
  const std::int64_t vocab = model->config().vocab_size;
  const auto run = [&](std::int64_t bad_row) {
    Engine engine(*model, nullptr, {.row_budget = 512});
    for (std::int64_t tag = 0; tag < 3; ++tag) {
      engine.submit(ScoreJob{tag, {{random_tokens(41, vocab, static_cast<std::uint64_t>(tag)), 20}}});
    }
    NanAt nan(0, bad_row);
    if (bad_row >= 0) model->observe(&nan);
    auto results = run_all(engine);
    model->observe(nullptr);
    return results;
  };
  const auto whole = run(-1), broken = run(40 + 25);  // the second sequence's rows are 40 to 79 of the one step
  ASSERT_TRUE(broken.at(1).failure);
  EXPECT_EQ(broken.at(1).failure->code, "nonfinite_value");
  EXPECT_NE(broken.at(1).failure->message.find("layer 3, token 25"), std::string::npos)
      << broken.at(1).failure->message;
  for (const std::int64_t tag : {0, 2}) {
    ASSERT_FALSE(broken.at(tag).failure);
    EXPECT_EQ(text_of({{tag, broken.at(tag)}}), text_of({{tag, whole.at(tag)}}));
  }
}

TEST(Engine, WhereASharedBeginningFailsEachFindsOutForItself) {
  const auto model = load_test_model("nano", {.max_rows = 512, .cone = false});
  const std::int64_t vocab = model->config().vocab_size;
  const auto context = random_tokens(40, vocab, 9);
  Engine engine(*model, nullptr, {.row_budget = 512});
  for (std::int64_t tag = 0; tag < 3; ++tag)
    engine.submit(ScoreJob{tag, {{joined(context, random_tokens(5, vocab, static_cast<std::uint64_t>(tag))), 40}}});
  NanAt nan(0, 17);  // in the first step, which holds nothing but the common beginning
  model->observe(&nan);
  const auto results = run_all(engine);
  model->observe(nullptr);
  EXPECT_EQ(nan.injected, 1);
  // The rows that are run again are well: nobody fails.
  for (std::int64_t tag = 0; tag < 3; ++tag) EXPECT_FALSE(results.at(tag).failure) << tag;
  Engine again(*model, nullptr, {.row_budget = 512, .prefix_sharing = false});
  for (std::int64_t tag = 0; tag < 3; ++tag)
    again.submit(ScoreJob{tag, {{joined(context, random_tokens(5, vocab, static_cast<std::uint64_t>(tag))), 40}}});
  EXPECT_EQ(text_of(results), text_of(run_all(again)));
}

TEST(Engine, WithTheConeOffRowsThatNothingWantedSeesDoNotFail) {
  // Only the last 32 of 600 rows are needed at the last layer; with the cone on the first is not even there.
  for (const bool cone : {true, false}) {
    const auto model = load_test_model("nano", {.max_rows = 1024, .cone = cone});
    Engine engine(*model, nullptr, {.row_budget = 1024});
    engine.submit(ScoreJob{0, {{random_tokens(601, model->config().vocab_size, 2), 600}}});
    NanInTopLayer nan;
    model->observe(&nan);
    const auto results = run_all(engine);
    model->observe(nullptr);
    EXPECT_EQ(nan.injected, cone ? 0 : 1);
    EXPECT_FALSE(results.at(0).failure) << cone;
  }
}

TEST(Engine, NothingToDrawIsAnEmptyAnswer) {
  const auto model = load_test_model("nano", {.max_rows = 64});
  Engine engine(*model, nullptr, {.row_budget = 64});
  GenerateJob job;
  job.prompt = {0};
  engine.submit(job);
  EXPECT_EQ(run_all(engine).at(0).generated.at(0).finish, engine::Finish::length);
}

TEST(Engine, RefusesARowBudgetBeyondTheBuffers) {
  const auto model = load_test_model("nano", {.max_rows = 64});
  EXPECT_THROW(Engine(*model, nullptr, {.row_budget = 65}), Error);
  EXPECT_THROW(Engine(*model, nullptr, {.row_budget = 0}), Error);
}

}  // namespace
}  // namespace bathys::test
