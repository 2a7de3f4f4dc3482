// SPDX-License-Identifier: Apache-2.0
// The kernels on a real device, in one program that needs neither a scheduler nor a file format: golden primitives,
// bits against the same body on the host, cuBLAS, NCCL.
//   device_check [golden.txt]     exit code 0: all held, 70: something did not, 77: no device here
#include "core/error.hpp"
#include "core/kokkos_compat.hpp"
#include "kernels/attention_inline.hpp"
#include "kernels/experts.hpp"
#include "kernels/hyper_connection.hpp"
#include "kernels/indexer.hpp"
#include "kernels/launch.hpp"
#include "kernels/linear.hpp"
#include "kernels/norm_rope.hpp"
#include "kernels/sampling.hpp"
#include "kernels/view_support.hpp"

#include <cmath>
#include <cstdio>
#include <exception>
#include <fstream>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include <cublas_v2.h>
#include <cuda_runtime_api.h>
#if defined(BATHYS_WITH_NCCL)
#include "parallel/nccl_collectives.hpp"
#endif

namespace bathys::test {

using namespace kernels;

// The text copy of golden tensors (tests/kernels/device_golden_test.cpp).
struct Tensor {
  std::int64_t rows = 0;
  std::int64_t columns = 0;
  std::vector<std::uint32_t> bits;

  [[nodiscard]] std::vector<float> floats() const {
    std::vector<float> out;
    for (const auto b : bits) out.push_back(numerics::float_of_bits(b));
    return out;
  }
  [[nodiscard]] std::vector<std::int32_t> integers() const { return {bits.begin(), bits.end()}; }
};
using Golden = std::map<std::string, Tensor>;

Golden read_golden(const std::string& path) {
  std::ifstream in(path);
  require(in.good(), ExitCode::bad_input, "{}: cannot be opened; name the file as the first argument", path);
  Golden golden;
  std::string name;
  Tensor tensor;
  while (in >> name >> std::dec >> tensor.rows >> tensor.columns) {
    tensor.bits.resize(static_cast<std::size_t>(tensor.rows * tensor.columns));
    for (auto& b : tensor.bits) in >> std::hex >> b;
    golden[name] = tensor;
  }
  return golden;
}

// Prints one line a check and counts what failed.
class Report {
 public:
  void check(const std::string& name, bool held, const std::string& words = "") {
    std::printf("event=device_check name=%s result=%s%s%s\n", name.c_str(), held ? "ok" : "failed",
                words.empty() ? "" : " ", words.c_str());
    failed_ += held ? 0 : 1;
  }
  // At most one bf16 step off, in at most one element of 200.
  void check_bf16(const std::string& name, const std::vector<float>& got, const std::vector<float>& want) {
    const auto step = [](float v) {
      const auto b = static_cast<std::int32_t>(numerics::bits_of_float(v) >> 16);
      return (b & 0x8000) != 0 ? -(b & 0x7fff) : b;
    };
    std::size_t off = got.size() == want.size() ? 0 : want.size();
    bool far = got.size() != want.size();
    for (std::size_t n = 0; n < got.size() && !far; ++n) {
      const int steps = std::abs(step(got[n]) - step(want[n]));
      off += steps != 0 ? 1 : 0;
      far = steps > 1;
    }
    check(name, !far && off <= want.size() / 200,
          "one_step_off=" + std::to_string(off) + " of=" + std::to_string(want.size()));
  }
  // Within 1e-5 of the rms, or 1e-4 relative.
  void check_float(const std::string& name, const std::vector<float>& got, const std::vector<float>& want) {
    double square = 0;
    for (const float v : want) square += double(v) * double(v);
    const double rms = std::sqrt(square / double(want.size()));
    bool held = got.size() == want.size();
    for (std::size_t n = 0; n < got.size() && held; ++n) {
      held = std::fabs(double(got[n]) - double(want[n])) <= std::max(1e-5 * rms, 1e-4 * std::fabs(double(want[n])));
    }
    check(name, held);
  }
  [[nodiscard]] int failed() const { return failed_; }

 private:
  int failed_ = 0;
};

Mat<bf16> bf16_mat(const Tensor& t) { return to_mat<bf16>(t.rows, t.columns, t.floats()); }
Mat<float> float_mat(const Tensor& t) { return to_mat<float>(t.rows, t.columns, t.floats()); }

void check_rows(const Golden& golden, Report& report) {
  const auto at = [&](const char* name) -> const Tensor& { return golden.at(name); };
  const auto y = poisoned<bf16>(at("rmsnorm/text/x").rows, at("rmsnorm/text/x").columns);
  rms_norm(Exec(), bf16_mat(at("rmsnorm/text/x")), to_vec<bf16>(at("rmsnorm/text/w").floats()), 1e-20F, y);
  report.check_bf16("rms_norm", to_floats(y), at("rmsnorm/text/y").floats());

  const auto freqs = rope_frequencies({.rope_dim = 16});
  const auto positions = at("rope/window_small/positions").integers();
  const Cube<float> table("test.table", positions.size(), 8, 2);
  rope_table(Exec(), to_vec<std::int64_t>(positions), to_vec<float>(freqs), table);
  for (const bool inverse : {false, true}) {
    const auto x = bf16_mat(at("rope/window_small/x"));
    rope_rotate(Exec(), x, 3, static_cast<int>(x.extent(1)) / 3, {}, table, inverse);
    report.check_bf16(inverse ? "rope_inverse" : "rope", to_floats(x),
                      at(inverse ? "rope/window_small/inverse" : "rope/window_small/forward").floats());
  }

  const auto h = bf16_mat(at("hc/m3_short/h"));
  const auto n = static_cast<std::int64_t>(h.extent(0));
  const HyperConnectionMix mix{poisoned<float>(n, 3), poisoned<float>(n, 3), poisoned<float>(n, 9)};
  hc_mixes(Exec(), h,
           {float_mat(at("hc/m3_short/fn")), to_vec<float>(at("hc/m3_short/scale").floats()),
            to_vec<float>(at("hc/m3_short/base").floats())},
           3, 5, 1e-6F, 1e-20F, mix);
  report.check_float("hc_pre_mix", to_floats(mix.pre), at("hc/m3_short/pre").floats());
  report.check_float("hc_post_mix", to_floats(mix.post), at("hc/m3_short/post").floats());
  report.check_float("hc_comb_mix", to_floats(mix.comb), at("hc/m3_short/comb").floats());
  hc_post(Exec(), bf16_mat(at("hc/m3_short/y")), float_mat(at("hc/m3_short/post")),
          to_mat<float>(n, 9, at("hc/m3_short/comb").floats()), h);
  report.check_bf16("hc_post", to_floats(h), at("hc/m3_short/hc_post").floats());
}

// A weight of the checkpoint's form, packed on the host and moved to the device.
PackedLinear packed(WeightKind kind, std::int64_t n, std::int64_t k, const std::vector<std::uint8_t>& codes,
                    std::int64_t code_stride, const std::vector<std::uint8_t>& scales, std::int64_t scale_stride) {
  std::vector<std::uint8_t> bytes(packed_bytes(kind, n, k));
  clear_packed(kind, n, k, bytes.data());
  pack_rows(kind, n, k, 0, n, {codes.data(), code_stride, scales.data(), scale_stride}, bytes.data());
  PackedLinear w;
  w.kind = kind;
  w.n = n;
  w.k = k;
  w.data = to_vec<std::uint8_t>(bytes);
  return w;
}

void check_linear_and_gate(const Golden& golden, Report& report) {
  const auto at = [&](const char* name) -> const Tensor& { return golden.at(name); };
  const auto bytes_of = [&](const char* name) {
    const auto& bits = at(name).bits;
    return std::vector<std::uint8_t>(bits.begin(), bits.end());
  };
  const Tensor& x = at("linear/fp4/x");
  const auto fp4 = packed(WeightKind::fp4, at("linear/fp4/w").rows, x.columns, bytes_of("linear/fp4/w"),
                          at("linear/fp4/w").columns, bytes_of("linear/fp4/w_scale"), at("linear/fp4/w_scale").columns);
  Activation activation(x.rows, x.columns, true);
  prepare_q8(Exec(), bf16_mat(x), x.columns, activation);
  const auto y = poisoned<bf16>(x.rows, fp4.n);
  linear(Exec(), fp4, 0, activation, y);
  report.check_bf16("linear_fp4", to_floats(y), at("linear/fp4/y").floats());

  const Tensor& w = at("gate/sqrtsoftplus_top3/w");
  std::vector<std::uint8_t> codes;
  for (const auto b : w.bits) {
    for (int byte = 0; byte < 4; ++byte) codes.push_back(static_cast<std::uint8_t>(b >> (8 * byte)));
  }
  const Tensor& gx = at("gate/sqrtsoftplus_top3/x");
  Activation plain(gx.rows, gx.columns, false);
  prepare_plain(Exec(), bf16_mat(gx), gx.columns, plain);
  const auto logits = poisoned<float>(gx.rows, w.rows);
  linear(Exec(), packed(WeightKind::f32, w.rows, w.columns, codes, 4 * w.columns, {}, 0), 0, plain, logits);
  const auto chosen = poisoned<std::int32_t>(gx.rows, 3);
  const auto weight = poisoned<float>(gx.rows, 3);
  GateSettings settings;
  settings.route_scale = 1.5F;
  gate(Exec(), logits, to_vec<float>(at("gate/sqrtsoftplus_top3/bias").floats()),
       to_vec<float>(at("gate/sqrtsoftplus_top3/bias_vl").floats()),
       to_vec<std::uint8_t>(at("gate/sqrtsoftplus_top3/image_mask").integers()), {}, settings, chosen, weight);
  // The golden rows are in the order of the scores, ours in the order of the experts.
  const auto ids = at("gate/sqrtsoftplus_top3/indices").integers();
  const auto values = at("gate/sqrtsoftplus_top3/weights").floats();
  std::vector<std::int32_t> want_ids;
  std::vector<float> want_weights;
  for (std::size_t first = 0; first < ids.size(); first += 3) {
    std::map<std::int32_t, float> by_expert;
    for (std::size_t c = first; c < first + 3; ++c) by_expert[ids[c]] = values[c];
    for (const auto& [id, value] : by_expert) {
      want_ids.push_back(id);
      // Row 2 rests on float32 subnormals of the reference, which have few bits; it is checked on the host with its own
      // tolerance.
      if (first != 6) want_weights.push_back(value);
    }
  }
  auto got_weights = to_host(weight);
  got_weights.erase(got_weights.begin() + 6, got_weights.begin() + 9);
  report.check("gate_choice", to_host(chosen) == want_ids);
  report.check_float("gate_weights", got_weights, want_weights);
}

// The attention body on listed keys, on a device team or one host thread.
struct ListedKeys {
  const float* rows;
  const std::int32_t* list;
  int head_dim;
  BATHYS_FUNCTION void decode(int key, float* out) const {
    for (int c = 0; c < head_dim; ++c) out[c] = rows[list[key] * head_dim + c];
  }
};
struct AttendListed {
  Mat<const float> kv;
  Mat<const std::int32_t> idx;
  Mat<const bf16> q;
  Vec<const float> sink;
  Mat<bf16> out;
  int heads;
  int head_dim;
  float scale;

  [[nodiscard]] BATHYS_FUNCTION std::int64_t scratch() const {
    return attention_scratch(heads, head_dim, static_cast<int>(idx.extent(1)));
  }
  template <class Threads>
  BATHYS_FUNCTION void row(const Threads& threads, int i, float* scratch) const {
    const std::int32_t* list = &idx(static_cast<std::size_t>(i), 0);
    int n = 0;
    while (n < static_cast<int>(idx.extent(1)) && list[n] >= 0) ++n;
    const HeadBlock block{
        heads, head_dim, scale, &q(static_cast<std::size_t>(i), 0), sink.data(), &out(static_cast<std::size_t>(i), 0)};
    attend(threads, ListedKeys{kv.data(), list, head_dim}, n, block, scratch);
  }
  KOKKOS_INLINE_FUNCTION void operator()(const Kokkos::TeamPolicy<Exec>::member_type& member) const {
    row(TeamThreads<Kokkos::TeamPolicy<Exec>::member_type>{member}, member.league_rank(),
        team_scratch(member, scratch()));
  }
};

// Valid indices first, -1 after, as the kernel's lists are.
std::vector<std::int32_t> compacted(const Tensor& idx) {
  const auto all = idx.integers();
  std::vector<std::int32_t> out;
  for (std::int64_t i = 0; i < idx.rows; ++i) {
    std::vector<std::int32_t> row;
    for (const auto k : slice(all, i * idx.columns, (i + 1) * idx.columns)) {
      if (k >= 0) row.push_back(k);
    }
    row.resize(static_cast<std::size_t>(idx.columns), -1);
    out.insert(out.end(), row.begin(), row.end());
  }
  return out;
}

void check_attention(const Golden& golden, Report& report) {
  const Tensor& q = golden.at("sparse_attn/small/q");
  const Tensor& idx = golden.at("sparse_attn/small/idx");
  constexpr int kDim = 32;
  for (const int heads : {8, 7, 1}) {  // an odd number of heads makes an odd number of floats of scratch
    const auto out = poisoned<bf16>(q.rows, q.columns);
    const AttendListed work{float_mat(golden.at("sparse_attn/small/kv")),
                            to_mat<std::int32_t>(idx.rows, idx.columns, compacted(idx)),
                            bf16_mat(q),
                            to_vec<float>(golden.at("sparse_attn/small/sink").floats()),
                            out,
                            heads,
                            kDim,
                            static_cast<float>(1 / std::sqrt(double{kDim}))};
    for_each_team(Exec(), "device_check.attention", q.rows, work.scratch(), work);
    const auto all = to_floats(out), golden_rows = golden.at("sparse_attn/small/o").floats();
    std::vector<float> got, want;
    for (std::int64_t row = 0; row < q.rows; ++row) {
      for (const auto& [from, to] : {std::pair(&all, &got), std::pair(&golden_rows, &want)}) {
        const auto mine = slice(*from, row * q.columns, row * q.columns + heads * kDim);
        to->insert(to->end(), mine.begin(), mine.end());
      }
    }
    report.check_bf16("sparse_attention_" + std::to_string(heads), got, want);
  }
}

// Bits of a kernel on the device against the same row functions on the host.
void check_bits(Report& report) {
  const int columns = 5003;
  const auto logits = random_values(columns, 1, 4.0, false);
  const auto chosen = poisoned<std::int32_t>(1, 512);
  std::vector<std::int32_t> want(512);
  select_topk_row(logits.data(), columns, 512, want.data());
  const IndexQueries in{
      Mat<bf16>("test.q", 1, 32),
      Mat<bf16>("test.w", 1, 1),
      {},
      {to_vec<std::int64_t>(std::vector<int>{columns - 1}), to_vec<std::int32_t>(std::vector<int>{0})},
      {},
      1,
      32,
      32,
      1};
  select_groups(Exec(), in, 0, to_mat<float>(1, columns, logits), chosen);
  report.check("select_groups_bits", to_host(chosen) == want);

  float best = logits[0];
  for (const float v : logits) best = std::max(best, v);
  const Vec<std::int64_t> sums("test.sums", 1);
  sum_exp(Exec(), to_mat<float>(1, columns, logits), to_vec<float>(std::vector<float>{best}), sums);
  std::int64_t sum = 0;
  for (const float v : logits)
    sum += static_cast<std::int64_t>(std::rint(double(numerics::exp_float(v - best)) * 0x1p44));
  report.check("sum_exp_bits", to_host(sums)[0] == sum);
}

void check_cublas(Report& report) {
  const int n = 33;
  const auto a = random_values(n * n, 1);
  const auto b = random_values(n * n, 2);
  const auto c = poisoned<float>(n, n);
  const auto left = to_mat<float>(n, n, a);
  const auto right = to_mat<float>(n, n, b);
  cublasHandle_t handle = nullptr;
  const float one = 1;
  const float zero = 0;
  bool held = cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS;
  // Column-major: C^T = B^T A^T is our row-major C = A B.
  held = held && cublasSgemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, n, n, n, &one, right.data(), n, left.data(), n, &zero,
                             c.data(), n) == CUBLAS_STATUS_SUCCESS;
  const auto got = to_floats(c);
  for (std::size_t i = 0; i < n && held; ++i) {
    for (std::size_t j = 0; j < n && held; ++j) {
      double want = 0;
      for (std::size_t k = 0; k < n; ++k) want += double(a[i * n + k]) * double(b[k * n + j]);
      held = std::fabs(double(got[i * n + j]) - want) < 1e-4;
    }
  }
  if (handle != nullptr) cublasDestroy(handle);
  report.check("cublas", held);
}

void check_nccl(Report& report) {
#if defined(BATHYS_WITH_NCCL)
  const auto group = parallel::make_nccl_collectives(parallel::make_single_collectives(), 60.0);
  const auto values = to_vec<std::int64_t>(std::vector<std::int64_t>{1, -2, std::int64_t{1} << 60});
  group->all_reduce_sum(Exec(), values.data(), 3);
  group->wait(Exec());
  report.check("nccl", to_host(values) == (std::vector<std::int64_t>{1, -2, std::int64_t{1} << 60}));
#else
  report.check("nccl", true, "left out of this build");
#endif
}

int run(const std::string& golden_path) {
  Report report;
  const Golden golden = read_golden(golden_path);
  check_rows(golden, report);
  check_linear_and_gate(golden, report);
  check_attention(golden, report);
  check_bits(report);
  check_cublas(report);
  check_nccl(report);
  std::printf("event=device_check_done failed=%d\n", report.failed());
  return report.failed() == 0 ? 0 : static_cast<int>(ExitCode::internal);
}

}  // namespace bathys::test

int main(int argc, char** argv) {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) {  // Kokkos would abort
    std::printf("event=device_check_skipped reason=\"no CUDA device\"\n");
    return 77;
  }
  try {
    bathys::initialize_kokkos(0, 0);
    int code = 0;
    try {
      code = bathys::test::run(argc > 1 ? argv[1] : BATHYS_TEST_DATA "/device/golden.txt");
    } catch (...) {
      Kokkos::finalize();
      throw;
    }
    Kokkos::finalize();
    return code;
  } catch (const bathys::Error& error) {
    std::fprintf(stderr, "device_check: error: %s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "device_check: error: %s\n", error.what());
    return static_cast<int>(bathys::ExitCode::internal);
  }
}
