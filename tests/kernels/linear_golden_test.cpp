// SPDX-License-Identifier: Apache-2.0
// Linears and whole experts against tests/golden/ops.h5.
#include "linear_support.hpp"
#include "numerics/maths.hpp"
#include "support/golden.hpp"

#include <gtest/gtest.h>

namespace bathys::test {
namespace {

using kernels::Activation;

Weight golden_weight(const GoldenFile& file, const std::string& path, WeightKind kind) {
  const GoldenArray codes = file.array(path);
  Weight w;
  w.kind = kind;
  w.n = codes.rows();
  w.k = kind == WeightKind::fp4 ? codes.row_size() * 2 : codes.row_size();
  if (kind == WeightKind::fp4 || kind == WeightKind::fp8) {
    w.codes = codes.bytes();
    w.scales = file.array(path + "_scale").bytes();
    return w;
  }
  for (const float v : codes.f) {
    const std::uint32_t u = numerics::bits_of_float(v);
    for (int byte = kind == WeightKind::bf16 ? 2 : 0; byte < 4; ++byte)
      w.codes.push_back(static_cast<std::uint8_t>(u >> (8 * byte)));
  }
  return w;
}

std::vector<std::vector<float>> golden_rows(const GoldenArray& x) {
  std::vector<std::vector<float>> rows;
  for (std::int64_t m = 0; m < x.rows(); ++m) {
    rows.emplace_back(x.f.begin() + m * x.row_size(), x.f.begin() + (m + 1) * x.row_size());
  }
  return rows;
}

using Rows = std::vector<std::vector<float>>;

// y rows of W x, with the activation that the weight's kind takes (`plain`: none, as for wo_a).
template <class T>
Rows run(const Weight& weight, const Rows& x, bool plain = false) {
  const bool q8 = !plain && (weight.kind == WeightKind::fp4 || weight.kind == WeightKind::fp8);
  Activation a(static_cast<std::int64_t>(x.size()), weight.k, q8);
  if (q8) {
    prepare_q8(Exec(), to_bf16_view(x), weight.k, a);
  } else {
    prepare_plain(Exec(), Mat<const bf16>(to_bf16_view(x)), weight.k, a);
  }
  Mat<T> y("y", x.size(), static_cast<std::size_t>(weight.n));
  linear(Exec(), packed_linear({weight}), 0, a, y);
  Rows out(x.size());
  for (std::size_t m = 0; m < x.size(); ++m) {
    for (std::int64_t n = 0; n < weight.n; ++n) out[m].push_back(static_cast<float>(y(m, n)));
  }
  return out;
}

std::vector<float> flat(const Rows& rows) {
  std::vector<float> out;
  for (const auto& row : rows) out.insert(out.end(), row.begin(), row.end());
  return out;
}

TEST(LinearGolden, EveryKindOfWeightGivesTheReferencesNumbers) {
  const GoldenFile file("ops.h5");
  const std::pair<const char*, WeightKind> cases[] = {
      {"fp4", WeightKind::fp4}, {"fp8", WeightKind::fp8}, {"fp8_ragged", WeightKind::fp8}, {"bf16", WeightKind::bf16}};
  for (const auto& [name, kind] : cases) {
    const std::string group = std::string("linear/") + name;
    const Rows x = golden_rows(file.array(group + "/x"));
    expect_bf16_close(flat(run<bf16>(golden_weight(file, group + "/w", kind), x)), file.array(group + "/y"), group);
  }
  const Rows x = golden_rows(file.array("linear/fp32/x"));
  expect_f32_close(flat(run<float>(golden_weight(file, "linear/fp32/w", WeightKind::f32), x)),
                   file.array("linear/fp32/y"), "linear/fp32");
}

TEST(LinearGolden, TheGroupsOfWoATakeTheirOwnRowsAndUnquantizedInputs) {
  const GoldenFile file("ops.h5");
  const Weight all = golden_weight(file, "linear/wo_a_grouped/w", WeightKind::fp8);
  const GoldenArray o = file.array("linear/wo_a_grouped/o");  // [tokens, groups, k]
  const std::int64_t tokens = o.shape[0], groups = o.shape[1], n = all.n / groups;
  std::vector<float> got(static_cast<std::size_t>(tokens * all.n));
  for (std::int64_t g = 0; g < groups; ++g) {
    Weight w{WeightKind::fp8, n, all.k, {}, {}};
    w.codes.assign(all.codes.begin() + g * n * all.k, all.codes.begin() + (g + 1) * n * all.k);
    w.scales.assign(all.scales.begin() + g * n / 32 * all.scale_stride(),
                    all.scales.begin() + (g + 1) * n / 32 * all.scale_stride());
    Rows x;
    for (std::int64_t t = 0; t < tokens; ++t) {
      const auto first = o.f.begin() + (t * groups + g) * all.k;
      x.emplace_back(first, first + all.k);
    }
    const Rows y = run<bf16>(w, x, true);
    for (std::int64_t t = 0; t < tokens; ++t)
      std::copy(y[std::size_t(t)].begin(), y[std::size_t(t)].end(), got.begin() + t * all.n + g * n);
  }
  expect_bf16_close(got, file.array("linear/wo_a_grouped/y"), "linear/wo_a_grouped");
}

// w2(bf16(weight * silu(g) * u)); an empty weight is 1 (the shared expert).
Rows expert(const Weight& w1, const Weight& w2, const Weight& w3, const Rows& x, const std::vector<float>& weight,
            float limit) {
  const Rows g = run<bf16>(w1, x), u = run<bf16>(w3, x);
  Rows h = g;
  for (std::size_t m = 0; m < h.size(); ++m) {
    for (std::size_t i = 0; i < h[m].size(); ++i) {
      const float gate = limit > 0 ? std::min(g[m][i], limit) : g[m][i];
      const float up = limit > 0 ? std::clamp(u[m][i], -limit, limit) : u[m][i];
      h[m][i] = numerics::round_to_bf16((weight.empty() ? 1.0F : weight[m]) * (numerics::silu(gate) * up));
    }
  }
  return run<bf16>(w2, h);
}

TEST(LinearGolden, WholeExpertsGiveTheReferencesNumbers) {
  const GoldenFile file("ops.h5");
  const std::pair<const char*, WeightKind> cases[] = {
      {"fp4_limit", WeightKind::fp4}, {"fp8_nolimit", WeightKind::fp8}, {"bf16_limit", WeightKind::bf16}};
  for (const auto& [name, kind] : cases) {
    const std::string group = std::string("expert/") + name;
    const Weight w1 = golden_weight(file, group + "/w1", kind), w2 = golden_weight(file, group + "/w2", kind),
                 w3 = golden_weight(file, group + "/w3", kind);
    const Rows x = golden_rows(file.array(group + "/x"));
    const auto limit = static_cast<float>(file.attribute(group, "swiglu_limit"));
    expect_bf16_close(flat(expert(w1, w2, w3, x, file.array(group + "/weight").f, limit)),
                      file.array(group + "/y_weighted"), group + "/y_weighted");
    expect_bf16_close(flat(expert(w1, w2, w3, x, {}, limit)), file.array(group + "/y_shared"), group + "/y_shared");
  }
}

}  // namespace
}  // namespace bathys::test
