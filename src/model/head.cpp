// SPDX-License-Identifier: Apache-2.0
#include "kernels/embedding.hpp"
#include "kernels/sampling.hpp"
#include "model/model_state.hpp"
#include "numerics/fixed_point.hpp"
#include "numerics/maths.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

namespace bathys::model {
namespace {

using kernels::first_rows;
using kernels::Vec;

template <class T>
Vec<T> device_vector(const char* label, std::size_t n) {
  return Vec<T>(Kokkos::view_alloc(std::string(label), Kokkos::WithoutInitializing), n);
}

// A rank's best value of each row and its id.
template <class Value>
struct Best {
  Value value;
  std::int64_t id;
};

// The best of all ranks for each of n rows: the largest value, ties to the lowest id; id -1 (a row with a NaN) wins.
template <class Value>
std::vector<Best<Value>> best_over_ranks(parallel::Collectives& ranks, const std::vector<Value>& values,
                                         const std::vector<std::int64_t>& ids) {
  const std::size_t n = values.size();
  std::vector<Best<Value>> mine(n), all(n * static_cast<std::size_t>(ranks.size()));
  for (std::size_t i = 0; i < n; ++i) mine[i] = {values[i], ids[i]};
  const std::vector<std::int64_t> bytes_of(static_cast<std::size_t>(ranks.size()),
                                           static_cast<std::int64_t>(n * sizeof(Best<Value>)));
  ranks.all_gather_v_host(mine.data(), all.data(), bytes_of);
  for (std::size_t i = 0; i < n; ++i) {
    mine[i] = all[i];
    for (std::size_t r = 1; r < static_cast<std::size_t>(ranks.size()); ++r) {
      const Best<Value>& other = all[r * n + i];
      if (mine[i].id < 0) break;
      if (other.id < 0 || other.value > mine[i].value || (other.value == mine[i].value && other.id < mine[i].id))
        mine[i] = other;
    }
  }
  return mine;
}

// Ids of the row in order of probability, ties to the lower id; the leading `n` are in order.
std::vector<std::int32_t> ranked_ids(std::span<const float> logits, std::int64_t n) {
  std::vector<std::int32_t> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  auto better = [&](std::int32_t a, std::int32_t b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b);
  };
  std::partial_sort(ids.begin(), ids.begin() + std::min<std::ptrdiff_t>(n, static_cast<std::ptrdiff_t>(ids.size())),
                    ids.end(), better);
  return ids;
}

bool draws_from_nucleus(const HeadQuery& q) { return q.target < 0 && q.temperature > 0 && q.top_p < 1; }

// Marks the fewest most probable ids (ties: the lower id) whose probabilities at this temperature reach p.
std::vector<bool> nucleus(std::span<const float> logits, float temperature, double p) {
  const std::vector<std::int32_t> ids = ranked_ids(logits, static_cast<std::int64_t>(logits.size()));
  const float t = std::max(temperature, kernels::kMinTemperature);
  const float top = logits[static_cast<std::size_t>(ids.front())] / t;
  std::vector<double> weight(ids.size());
  double total = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    weight[i] = numerics::exp_double(double(logits[static_cast<std::size_t>(ids[i])] / t) - double(top));
    total += weight[i];
  }
  std::vector<bool> keep(ids.size(), false);
  double sum = 0;
  for (std::size_t i = 0; i < ids.size(); ++i) {
    keep[static_cast<std::size_t>(ids[i])] = true;
    sum += weight[i];
    if (sum >= p * total) break;
  }
  return keep;
}

}  // namespace

// Logits of this rank's vocabulary rows for the queries' rows, into work.head_logits.
void Model::State::logits_of(std::span<const HeadQuery> queries) {
  std::vector<std::int32_t> rows;
  for (const HeadQuery& q : queries) rows.push_back(static_cast<std::int32_t>(q.wanted_row));
  const auto n = static_cast<std::int64_t>(rows.size());
  const Mat<bf16> x = first_rows(work.head_rows, n);
  kernels::gather_rows(exec, work.wanted, Vec<const std::int32_t>(to_device("head_rows", rows)), x);
  kernels::prepare_plain(exec, x, config.dim, work.plain);
  kernels::linear(exec, weights.head, 0, work.plain, first_rows(work.head_logits, n));
}

// The whole vocabulary's logits of the leading n rows of work.head_logits, on every rank.
std::vector<float> Model::State::gather_logits(std::int64_t n) {
  grid.tensor->wait(exec);
  const auto vocab = static_cast<std::size_t>(config.vocab_size);
  std::vector<float> all(static_cast<std::size_t>(n) * vocab);
  for (std::int64_t i = 0; i < n; ++i) {
    const std::vector<float> mine = to_host(Vec<const float>(Kokkos::subview(work.head_logits, i, Kokkos::ALL)));
    grid.tensor->all_gather_v_host(mine.data(), all.data() + static_cast<std::size_t>(i) * vocab, vocab_bytes);
  }
  return all;
}

std::vector<HeadAnswer> Model::head(std::span<const HeadQuery> queries) {
  std::vector<HeadAnswer> answers(queries.size());
  const auto at_once = static_cast<std::size_t>(state_->options.head_rows);
  for (std::size_t first = 0; first < queries.size(); first += at_once) {
    const std::size_t n = std::min(at_once, queries.size() - first);
    if (state_->layer_begins) state_->layer_begins(state_->config.n_layers);
    state_->answer(queries.subspan(first, n), std::span(answers).subspan(first, n));
  }
  return answers;
}

std::vector<float> Model::logits(std::int64_t wanted_row) {
  const HeadQuery query{.wanted_row = wanted_row};
  state_->logits_of({&query, 1});
  return state_->gather_logits(1);
}

// Of the leading rows of work.head_logits, one for each entry of max: sum over the whole vocabulary of exp(logit -
// max), in fixed point.
std::vector<std::int64_t> Model::State::exp_sums(const std::vector<float>& max) {
  const Vec<std::int64_t> sums = device_vector<std::int64_t>("head_sums", max.size());
  kernels::sum_exp(exec, first_rows(work.head_logits, std::ssize(max)), to_device("head_max", max), sums);
  grid.tensor->wait(exec);
  std::vector<std::int64_t> sum = to_host(sums);
  grid.tensor->all_reduce_host(std::span<std::int64_t>(sum), parallel::Reduce::sum);
  return sum;
}

// The logit of token[i] in row i, from the rank that owns it; 0 where token[i] is -1.
std::vector<float> Model::State::logits_of_tokens(const std::vector<std::int64_t>& token) {
  const Vec<float> picked = device_vector<float>("head_picked", token.size());
  kernels::pick_logit(exec, first_rows(work.head_logits, std::ssize(token)), weights.first_vocab,
                      to_device("head_ids", token), picked);
  grid.tensor->wait(exec);
  std::vector<float> logits = to_host(picked);
  std::vector<std::int64_t> bits(logits.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = std::bit_cast<std::uint32_t>(logits[i]);
  // One owner: the others add zero bits.
  grid.tensor->all_reduce_host(std::span<std::int64_t>(bits), parallel::Reduce::sum);
  for (std::size_t i = 0; i < bits.size(); ++i) logits[i] = std::bit_cast<float>(static_cast<std::uint32_t>(bits[i]));
  return logits;
}

// A token for each query, -1 where has_nan.   rows [n, V] all logits, where some query draws from a nucleus; else empty
std::vector<std::int64_t> Model::State::draw(std::span<const HeadQuery> queries, const std::vector<bool>& has_nan,
                                             std::span<const float> rows) {
  const std::size_t n = queries.size(), vocab = static_cast<std::size_t>(config.vocab_size);
  std::vector<std::uint64_t> key;
  std::vector<std::int64_t> position;
  std::vector<std::int32_t> repeat;
  std::vector<float> temperature;
  for (const HeadQuery& q : queries) {
    key.push_back(q.key);
    position.push_back(q.position);
    repeat.push_back(q.repeat);
    temperature.push_back(q.temperature);
  }
  const Mat<const float> logits = first_rows(work.head_logits, static_cast<std::int64_t>(n));
  const std::size_t local = logits.extent(1), words = (local + 31) / 32;
  Mat<std::uint32_t> allowed;
  std::vector<bool> none_here(n, false);  // top-p keeps no id of this rank
  if (!rows.empty()) {
    std::vector<std::uint32_t> bits(n * words, ~0U);
    for (std::size_t i = 0; i < n; ++i) {
      if (!draws_from_nucleus(queries[i]) || has_nan[i]) continue;
      const std::vector<bool> keep = nucleus(rows.subspan(i * vocab, vocab), queries[i].temperature, queries[i].top_p);
      none_here[i] = true;
      for (std::size_t v = 0; v < local; ++v) {
        if (keep[static_cast<std::size_t>(weights.first_vocab) + v]) {
          none_here[i] = false;
        } else {
          bits[i * words + v / 32] &= ~(1U << (v % 32));
        }
      }
    }
    const Vec<std::uint32_t> flat = to_device("head_allowed", bits);
    allowed =
        Mat<std::uint32_t>(Kokkos::view_alloc(std::string("head_allowed"), Kokkos::WithoutInitializing), n, words);
    Kokkos::deep_copy(Vec<std::uint32_t>(UnmanagedView<std::uint32_t*>(allowed.data(), n * words)), flat);
  }
  const kernels::DrawKeys keys{to_device("draw_key", key), to_device("draw_position", position),
                               to_device("draw_repeat", repeat), to_device("draw_temperature", temperature)};
  const Vec<double> drawn = device_vector<double>("drawn", n);
  const Vec<std::int64_t> drawn_id = device_vector<std::int64_t>("drawn_id", n);
  kernels::draw(exec, logits, weights.first_vocab, keys, allowed, drawn, drawn_id);
  grid.tensor->wait(exec);
  std::vector<double> values = to_host(drawn);
  std::vector<std::int64_t> ids = to_host(drawn_id);
  for (std::size_t i = 0; i < n; ++i) {
    if (!none_here[i]) continue;  // nothing to offer is no NaN: it loses to every rank that has something
    values[i] = -std::numeric_limits<double>::infinity();
    ids[i] = std::numeric_limits<std::int64_t>::max();
  }
  const std::vector<Best<double>> choice = best_over_ranks(*grid.tensor, values, ids);
  std::vector<std::int64_t> token(n);
  for (std::size_t i = 0; i < n; ++i) token[i] = choice[i].id;
  // All ranks have computed the same; one decides all the same, so that they can never drift apart.
  grid.tensor->broadcast_host(token.data(), static_cast<std::int64_t>(n * sizeof(std::int64_t)), 0);
  return token;
}

void Model::State::answer(std::span<const HeadQuery> queries, std::span<HeadAnswer> answers) {
  const std::size_t n = queries.size(), vocab = static_cast<std::size_t>(config.vocab_size);
  logits_of(queries);

  const Vec<float> best = device_vector<float>("head_best", n);
  const Vec<std::int64_t> best_id = device_vector<std::int64_t>("head_best_id", n);
  kernels::best_logit(exec, first_rows(work.head_logits, static_cast<std::int64_t>(n)), weights.first_vocab, best,
                      best_id);
  grid.tensor->wait(exec);
  const std::vector<Best<float>> top = best_over_ranks(*grid.tensor, to_host(best), to_host(best_id));
  std::vector<float> max(n);
  std::vector<bool> has_nan(n);
  for (std::size_t i = 0; i < n; ++i) {
    max[i] = top[i].value;
    has_nan[i] = top[i].id < 0;
  }
  const std::vector<std::int64_t> sum = exp_sums(max);

  // Whole rows, where a query looks at more than one logit.
  std::vector<float> rows;
  if (std::any_of(queries.begin(), queries.end(),
                  [](const HeadQuery& q) { return q.top_logprobs > 0 || draws_from_nucleus(q); }))
    rows = gather_logits(static_cast<std::int64_t>(n));

  std::vector<std::int64_t> token(n);
  for (std::size_t i = 0; i < n; ++i) token[i] = queries[i].target;
  if (std::any_of(token.begin(), token.end(), [](std::int64_t t) { return t < 0; })) {
    const std::vector<std::int64_t> drawn = draw(queries, has_nan, rows);
    for (std::size_t i = 0; i < n; ++i) token[i] = token[i] < 0 ? drawn[i] : token[i];
  }
  const std::vector<float> logit = logits_of_tokens(token);

  for (std::size_t i = 0; i < n; ++i) {
    HeadAnswer& a = answers[i];
    a.finite = !has_nan[i] && std::isfinite(max[i]) && token[i] >= 0;
    if (!a.finite) continue;
    const double log_sum = numerics::log_double(numerics::from_fixed<numerics::kExpBits>(sum[i]));
    auto logprob = [&](float l) { return static_cast<float>(double(l) - double(max[i]) - log_sum); };
    a.token = token[i];
    a.logprob = logprob(logit[i]);
    a.greedy = top[i].id == token[i];
    if (queries[i].top_logprobs <= 0) continue;
    const std::span<const float> row = std::span<const float>(rows).subspan(i * vocab, vocab);
    const std::vector<std::int32_t> ids = ranked_ids(row, queries[i].top_logprobs);
    for (int t = 0; t < std::min(queries[i].top_logprobs, static_cast<int>(vocab)); ++t) {
      const std::int32_t id = ids[static_cast<std::size_t>(t)];
      a.top.emplace_back(id, logprob(row[static_cast<std::size_t>(id)]));
    }
  }
}

}  // namespace bathys::model
