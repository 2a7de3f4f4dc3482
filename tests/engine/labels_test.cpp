// SPDX-License-Identifier: Apache-2.0
// A profile names what it shows: every kernel and every allocation of a model's whole way has a label of ours, seen
// through the callbacks that Kokkos tools use.
#include "engine/engine.hpp"
#include "model/support.hpp"

#include <cstdint>
#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <impl/Kokkos_Profiling.hpp>

namespace bathys::test {
namespace {

namespace tools = Kokkos::Tools::Experimental;

// The callbacks take no context.
std::set<std::string>& kernels() {
  static std::set<std::string> names;
  return names;
}
std::set<std::string>& allocations() {
  static std::set<std::string> names;
  return names;
}

void on_kernel(const char* name, const std::uint32_t /*device*/, std::uint64_t* /*id*/) { kernels().insert(name); }
void on_allocation(const Kokkos::Profiling::SpaceHandle /*space*/, const char* label, const void* const /*data*/,
                   const std::uint64_t /*bytes*/) {
  allocations().insert(label);
}

// Ours, or Kokkos's own (copies, fills, scratch): a launch without a label shows the mangled name of its functor's
// type.
bool is_kernel_label(const std::string& name) { return name.starts_with("bathys.") || name.starts_with("Kokkos::"); }

class Labels : public ::testing::Test {
 protected:
  void SetUp() override {
    kernels().clear();
    allocations().clear();
    tools::set_begin_parallel_for_callback(on_kernel);
    tools::set_begin_parallel_reduce_callback(on_kernel);
    tools::set_begin_parallel_scan_callback(on_kernel);
    tools::set_allocate_data_callback(on_allocation);
  }
  void TearDown() override {
    tools::set_begin_parallel_for_callback(nullptr);
    tools::set_begin_parallel_reduce_callback(nullptr);
    tools::set_begin_parallel_scan_callback(nullptr);
    tools::set_allocate_data_callback(nullptr);
  }
};

TEST_F(Labels, OfEveryKernelAndAllocationOfAModelThatScoresAndDraws) {
  for (const char* name : {"base", "nano"}) {
    const auto model = load_test_model(name, {.max_rows = 64, .head_rows = 8, .cone = true});
    engine::Engine engine(*model, nullptr, {.row_budget = 64, .max_sequences = 8});
    const auto tokens = random_tokens(70, model->config().vocab_size, 5);
    auto other = tokens;
    other.back() ^= 1;
    engine.submit(engine::ScoreJob{.tag = 1, .sequences = {{tokens, 60}, {other, 60}}});
    engine.submit(engine::GenerateJob{.tag = 2,
                                      .prompt = tokens,
                                      .max_new_tokens = 3,
                                      .temperature = 1,
                                      .top_p = 0.9,
                                      .key = 7,
                                      .repeats = {0, 1},
                                      .top_logprobs = 2,
                                      .stops = {}});
    while (engine.step()) {
    }
  }
  EXPECT_GT(kernels().size(), 20U);
  EXPECT_GT(allocations().size(), 20U);
  for (const std::string& name : kernels()) EXPECT_TRUE(is_kernel_label(name)) << "kernel " << name;
  for (const std::string& name : allocations()) EXPECT_FALSE(name.empty()) << "an allocation without a label";
}

TEST_F(Labels, AreMissedWhereALaunchHasNone) {
  Kokkos::parallel_for(Kokkos::RangePolicy<Exec>(0, 1), KOKKOS_LAMBDA(int){});
  ASSERT_EQ(kernels().size(), 1U);
  EXPECT_FALSE(is_kernel_label(*kernels().begin())) << *kernels().begin();
}

}  // namespace
}  // namespace bathys::test
