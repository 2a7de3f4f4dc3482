// SPDX-License-Identifier: Apache-2.0
// The same bits, however a number is computed: ranks, chunks, batches, the cone, forks.  Everything compares the
// program with itself.
#include "core/error.hpp"
#include "model/support.hpp"

#include <algorithm>
#include <bit>

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using Logits = std::vector<std::vector<float>>;

const std::vector<std::string> kModels = {"base", "plain", "nano"};

model::ModelOptions whole_rows(bool cone = false) { return {.max_rows = 768, .head_rows = 16, .cone = cone}; }

// Lengths around the windows (16, 8, 32), the group ratios and the pages; all of them in the full tier.
std::vector<std::int64_t> lengths() {
  if (full_tier()) return {1, 2, 3, 4, 5, 6, 7, 8, 9, 31, 32, 33, 127, 129, 190, 322, 706};
  return {1, 2, 5, 9, 33, 129, 190};
}

// Exact equality, told briefly.
void expect_same(const Logits& got, const Logits& want, const std::string& what) {
  ASSERT_EQ(got.size(), want.size()) << what;
  for (std::size_t t = 0; t < got.size(); ++t) {
    ASSERT_TRUE(
        std::equal(got[t].begin(), got[t].end(), want[t].begin(), want[t].end(),
                   [](float a, float b) { return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b); }))
        << what << ": logits of row " << t << " of " << got.size() << " differ";
  }
}

std::vector<std::int32_t> tokens_of(const model::Model& model, std::int64_t n) {
  return random_tokens(n, model.config().vocab_size, 1000 + static_cast<std::uint64_t>(n));
}

TEST(SameBits, OnAllRanksTogetherAsOnOneAlone) {
  for (const std::string& name : kModels) {
    const auto together = load_test_model(name, whole_rows());
    const auto alone = load_test_model_alone(name, whole_rows());
    for (const std::int64_t n : lengths()) {
      const auto tokens = tokens_of(*together, n);
      expect_same(logits_in_chunks(*together, tokens, {n}), logits_in_chunks(*alone, tokens, {n}),
                  name + " of " + std::to_string(n));
    }
  }
}

TEST(SameBits, InChunksOfAnySizeAsInOnePiece) {
  for (const std::string& name : kModels) {
    const auto model = load_test_model(name, whole_rows());
    for (const std::int64_t n : lengths()) {
      const auto tokens = tokens_of(*model, n);
      const Logits whole = logits_in_chunks(*model, tokens, {n});
      std::vector<std::vector<std::int64_t>> cuts = {{1}, {2}, {3}, {5}, {64}, {n - 1, 1}, {4, 1, 7, 2}};
      if (!full_tier()) cuts = {{n > 64 ? 5 : 1}, {3}, {64, 1, 2}};
      for (const auto& cut : cuts) {
        if (cut.front() < 1) continue;
        expect_same(logits_in_chunks(*model, tokens, cut), whole,
                    name + " of " + std::to_string(n) + " in chunks from " + std::to_string(cut.front()));
      }
    }
  }
}

// Many sequences of different lengths, each cut differently, in every step together.
void check_batch(model::Model& model, std::size_t count, const std::string& what) {
  std::vector<std::vector<std::int32_t>> tokens;
  std::vector<model::Sequence> sequences;
  std::vector<Logits> got(count);
  for (std::size_t b = 0; b < count; ++b) {
    tokens.push_back(random_tokens(1 + static_cast<std::int64_t>(b * 37 % 120), model.config().vocab_size, b));
    sequences.push_back(model.caches().make());
  }
  for (bool more = true; more;) {
    more = false;
    model::Step step;
    std::vector<std::size_t> who;
    for (std::size_t b = count; b-- > 0;) {  // the order in the batch changes nothing either
      const auto at = static_cast<std::size_t>(sequences[b].length());
      const std::size_t n = std::min<std::size_t>(1 + b % 9, tokens[b].size() - at);
      if (n == 0) continue;
      more = true;
      model::SequenceChunk chunk{&sequences[b], {}, std::vector<std::int64_t>(n, 0), {}};
      chunk.tokens.assign(tokens[b].begin() + std::ptrdiff_t(at), tokens[b].begin() + std::ptrdiff_t(at + n));
      who.insert(who.end(), n, b);
      step.chunks.push_back(std::move(chunk));
    }
    model.run(step);
    for (std::size_t i = 0; i < who.size(); ++i) got[who[i]].push_back(model.logits(static_cast<std::int64_t>(i)));
  }
  for (std::size_t b = 0; b < count; ++b) {
    expect_same(got[b], logits_in_chunks(model, tokens[b], {static_cast<std::int64_t>(tokens[b].size())}),
                what + ", sequence " + std::to_string(b));
  }
}

TEST(SameBits, InABatchOfMixedSequencesAsAlone) {
  for (const std::string& name : kModels) {
    const auto model = load_test_model(name, whole_rows());
    check_batch(*model, 3, name + " in a batch of 3");
    check_batch(*model, 17, name + " in a batch of 17");
  }
}

// Runs tokens in chunks with the reach that `wanted` gives and returns the logits of the wanted rows.
Logits wanted_logits(model::Model& model, const std::vector<std::int32_t>& tokens, const std::vector<bool>& wanted,
                     std::int64_t chunk_rows) {
  Logits out;
  std::vector<std::int64_t> reach(tokens.size(), model::kNoReach);
  std::int64_t distance = model::kNoReach;
  for (std::size_t i = tokens.size(); i-- > 0;) {
    distance = wanted[i] ? 0 : distance == model::kNoReach ? distance : distance + 1;
    reach[i] = distance;
  }
  model::Sequence sequence = model.caches().make();
  for (std::size_t at = 0; at < tokens.size();) {
    const auto n = std::min(static_cast<std::size_t>(chunk_rows), tokens.size() - at);
    model::Step step;
    const auto from = std::ptrdiff_t(at), to = std::ptrdiff_t(at + n);
    step.chunks.push_back(
        {&sequence, {tokens.begin() + from, tokens.begin() + to}, {reach.begin() + from, reach.begin() + to}, {}});
    model.run(step);
    for (std::int64_t i = 0; i < model.wanted(); ++i) out.push_back(model.logits(i));
    at += n;
  }
  return out;
}

TEST(SameBits, OfWantedRowsWithTheConeAsWithout) {
  for (const std::string& name : kModels) {
    const auto full = load_test_model(name, whole_rows(false));
    const auto cone = load_test_model(name, whole_rows(true));
    for (const std::int64_t n : lengths()) {
      const auto tokens = tokens_of(*full, n);
      const Logits all = logits_in_chunks(*full, tokens, {n});
      // The last row; a scored suffix; rows far apart; and the last row followed by decoding to the end.
      std::vector<std::vector<bool>> wishes(4, std::vector<bool>(static_cast<std::size_t>(n), false));
      for (std::int64_t i = 0; i < n; ++i) {
        const auto at = static_cast<std::size_t>(i);
        wishes[0][at] = i == n - 1;
        wishes[1][at] = i >= n - 7;
        wishes[2][at] = i % 71 == 3 || i == n - 1;
        wishes[3][at] = i >= n / 2;
      }
      for (const auto& wanted : wishes) {
        Logits want;
        for (std::size_t i = 0; i < wanted.size(); ++i) {
          if (wanted[i]) want.push_back(all[i]);
        }
        for (const std::int64_t rows : {n, std::int64_t{13}}) {
          expect_same(wanted_logits(*cone, tokens, wanted, rows), want,
                      name + " of " + std::to_string(n) + " with the cone, chunks of " + std::to_string(rows));
        }
      }
    }
  }
}

TEST(Cone, RunsTheRowsOfTheClosedFormAndNoMore) {
  for (const std::string& name : kModels) {
    const auto model = load_test_model(name, whole_rows(true));
    const config::ModelConfig& c = model->config();
    const std::int64_t n = 700, suffix = 3;
    std::vector<bool> wanted(static_cast<std::size_t>(n), false);
    for (std::int64_t i = n - suffix; i < n; ++i) wanted[static_cast<std::size_t>(i)] = true;
    wanted_logits(*model, tokens_of(*model, n), wanted, 64);
    for (int l = 0; l < c.n_layers; ++l) {
      const bool above = l >= c.cone_layer();
      const std::int64_t full =
          above ? std::min(n, suffix + std::int64_t{c.n_layers - 1 - l} * (c.window_size - 1)) : n;
      const std::int64_t window = above ? std::min(n, suffix + std::int64_t{c.n_layers - l} * (c.window_size - 1)) : n;
      const model::LayerCounters& counted = model->counters()[static_cast<std::size_t>(l)];
      EXPECT_EQ(counted.full_rows, full) << name << " layer " << l;
      EXPECT_EQ(counted.window_rows, window) << name << " layer " << l;
      EXPECT_EQ(counted.source_rows, c.is_kv_source(l) ? n : 0) << name << " layer " << l;
    }
  }
}

TEST(Cone, RefusesARowThatReachesBelowWhatItKept) {
  const auto model = load_test_model("nano", whole_rows(true));
  const auto tokens = tokens_of(*model, 100);
  model::Sequence sequence = model->caches().make();
  model::Step first, second;
  first.chunks.push_back(
      {&sequence, {tokens.begin(), tokens.begin() + 90}, std::vector<std::int64_t>(90, model::kNoReach), {}});
  model->run(first);
  second.chunks.push_back({&sequence, {tokens.begin() + 90, tokens.end()}, std::vector<std::int64_t>(10, 0), {}});
  EXPECT_THROW(model->run(second), Error);
}

TEST(SameBits, AfterAForkAsWithoutOne) {
  for (const std::string& name : kModels) {
    const auto model = load_test_model(name, whole_rows());
    for (const std::int64_t at : {1, 6, 63, 130}) {
      const auto tokens = tokens_of(*model, 150);
      auto run = [&](model::Sequence& sequence, const std::vector<std::int32_t>& rows) {
        model::Step step;
        step.chunks.push_back({&sequence, rows, std::vector<std::int64_t>(rows.size(), 0), {}});
        model->run(step);
        Logits out;
        for (std::int64_t i = 0; i < model->wanted(); ++i) out.push_back(model->logits(i));
        return out;
      };
      const std::vector<std::int32_t> head(tokens.begin(), tokens.begin() + at),
          tail(tokens.begin() + at, tokens.end());
      std::vector<std::int32_t> other = tail;
      std::reverse(other.begin(), other.end());
      model::Sequence parent = model->caches().make();
      run(parent, head);
      model::Sequence child = model->fork(parent);
      const Logits of_other = run(child, other);  // the child goes elsewhere first and must leave its parent alone
      model::Sequence second = model->fork(parent);
      const Logits of_parent = run(parent, tail);
      parent = model::Sequence();  // dropping one must not touch the others
      const Logits of_second = run(second, tail);
      auto expected = [&](const std::vector<std::int32_t>& rest) {
        std::vector<std::int32_t> all = head;
        all.insert(all.end(), rest.begin(), rest.end());
        Logits logits = logits_in_chunks(*model, all, {static_cast<std::int64_t>(all.size())});
        logits.erase(logits.begin(), logits.begin() + at);
        return logits;
      };
      expect_same(of_parent, expected(tail), name + " parent forked at " + std::to_string(at));
      expect_same(of_second, expected(tail), name + " second child at " + std::to_string(at));
      expect_same(of_other, expected(other), name + " first child at " + std::to_string(at));
    }
  }
}

TEST(Step, WithNoRowsDoesNothing) {
  const auto model = load_test_model("nano", whole_rows());
  EXPECT_TRUE(model->run({}).empty());
  EXPECT_EQ(model->wanted(), 0);
}

TEST(Step, RefusesATokenOutsideTheVocabulary) {
  const auto model = load_test_model("nano", whole_rows());
  for (const std::int32_t token : {-1, 1024}) {
    model::Sequence sequence = model->caches().make();
    model::Step step;
    step.chunks.push_back({&sequence, {token}, {0}, {}});
    EXPECT_THROW(model->run(step), Error) << token;
  }
}

TEST(Caches, GiveBackWhatDroppedSequencesHeld) {
  const auto model = load_test_model("nano", whole_rows());
  const std::int64_t before = model->caches().used_bytes();
  {
    model::Sequence sequence = model->caches().make();
    model::Step step;
    step.chunks.push_back({&sequence, tokens_of(*model, 300), std::vector<std::int64_t>(300, 0), {}});
    model->run(step);
    EXPECT_EQ(model->caches().used_bytes() - before, model->caches().bytes_for(300));
  }
  EXPECT_EQ(model->caches().used_bytes(), before);
}

}  // namespace
}  // namespace bathys::test
