// SPDX-License-Identifier: Apache-2.0
// Who gets how much memory: made-up figures in, a budget or a refusal out.
#include "model/memory_plan.hpp"

#include "core/error.hpp"

#include <string>

#include <gtest/gtest.h>

namespace bathys::model {
namespace {

constexpr std::int64_t kGiB = std::int64_t{1} << 30;
constexpr MemoryPlan kPlan{.weights = 6 * kGiB, .workspace = 2 * kGiB};

FreeMemory on_host(std::int64_t bytes, int ranks = 1) {
  FreeMemory free;
  free.host = "node7";
  free.host_bytes = bytes;
  free.host_ranks = ranks;
  return free;
}

FreeMemory on_device(std::int64_t bytes, std::int64_t host_bytes, int ranks = 1) {
  FreeMemory free = on_host(host_bytes, 4);
  free.device = true;
  free.device_bytes = bytes;
  free.device_ranks = ranks;
  return free;
}

std::string refusal(const MemoryPlan& plan, const FreeMemory& free, double memory_gib = 0) {
  try {
    static_cast<void>(budget_memory(plan, kGiB, free, memory_gib, 512));
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ExitCode::usage);
    return error.what();
  }
  return {};
}

TEST(MemoryBudget, CachesGetMostOfWhatTheModelLeavesOfARanksShare) {
  const MemoryBudget budget = budget_memory(kPlan, kGiB, on_host(112 * kGiB, 4), 0, 512);
  EXPECT_EQ(budget.share, 28 * kGiB);
  EXPECT_EQ(budget.caches, 17 * kGiB);  // 85 % of 28 - 8
  EXPECT_EQ(budget.announced(), 26 * kGiB);
  EXPECT_EQ(budget.announced_host(), 26 * kGiB);
  EXPECT_FALSE(budget.beyond_share());
}

TEST(MemoryBudget, WhatWasAskedForIsGivenAndToldApartWhereItIsMoreThanThere) {
  const MemoryBudget within = budget_memory(kPlan, kGiB, on_host(12 * kGiB), 4, 512);
  EXPECT_EQ(within.caches, 4 * kGiB);
  EXPECT_FALSE(within.beyond_share());
  const MemoryBudget beyond = budget_memory(kPlan, kGiB, on_host(12 * kGiB), 4.5, 512);
  EXPECT_EQ(beyond.caches, 9 * kGiB / 2);
  EXPECT_TRUE(beyond.beyond_share());
  EXPECT_EQ(budget_memory(kPlan, kGiB, on_host(12 * kGiB), 1e-12, 512).caches, 1);  // 0 would be no bound
}

TEST(MemoryBudget, AModelThatFillsTheShareLeavesABoundAndOneByteMoreIsRefused) {
  const MemoryBudget full = budget_memory(kPlan, kGiB, on_host(16 * kGiB, 2), 0, 512);
  EXPECT_EQ(full.caches, 1);  // 0 would be no bound
  const std::string cause = refusal({kPlan.weights + 1, kPlan.workspace}, on_host(16 * kGiB, 2));
  for (const char* part : {"6.00 GiB", "2.00 GiB", "--row-budget 512", "2 ranks on host node7", "8.00 GiB"})
    EXPECT_NE(cause.find(part), std::string::npos) << part << " in: " << cause;
  EXPECT_EQ(refusal({kPlan.weights + 1, kPlan.workspace}, on_host(16 * kGiB, 2), 1), cause);  // --memory helps nothing
}

TEST(MemoryBudget, LessThanAByteForARankIsNotTheUnknown) {
  EXPECT_FALSE(refusal(kPlan, on_host(1, 2)).empty());
  EXPECT_FALSE(refusal(kPlan, on_device(1, 0, 2)).empty());
}

TEST(MemoryBudget, WhereTheKernelSaysNothingOnlyTheOptionBounds) {
  const MemoryBudget unknown = budget_memory(kPlan, kGiB, on_host(0, 4), 0, 512);
  EXPECT_EQ(unknown.caches, 0);
  EXPECT_EQ(unknown.share, 0);
  const MemoryBudget asked = budget_memory(kPlan, kGiB, on_host(0, 4), 3, 512);
  EXPECT_EQ(asked.caches, 3 * kGiB);
  EXPECT_FALSE(asked.beyond_share());
}

TEST(MemoryBudget, OnADeviceItsOwnMemoryCountsAndTheHostsDoesNot) {
  for (const std::int64_t host_bytes : {std::int64_t{0}, kGiB, 4000 * kGiB}) {
    const MemoryBudget budget = budget_memory(kPlan, kGiB, on_device(28 * kGiB, host_bytes), 0, 512);
    EXPECT_TRUE(budget.on_device);
    EXPECT_EQ(budget.share, 28 * kGiB);
    EXPECT_EQ(budget.caches, 17 * kGiB);
    EXPECT_EQ(budget.model(), 25 * kGiB);
    EXPECT_EQ(budget.announced_host(), kGiB);
  }
  EXPECT_EQ(budget_memory(kPlan, kGiB, on_device(56 * kGiB, kGiB, 2), 0, 512).caches, 17 * kGiB);
  const std::string cause = refusal(kPlan, on_device(7 * kGiB, 4000 * kGiB));
  for (const char* part : {"1 ranks on a GPU of host node7", "7.00 GiB"})
    EXPECT_NE(cause.find(part), std::string::npos) << part << " in: " << cause;
  EXPECT_TRUE(budget_memory(kPlan, kGiB, on_device(12 * kGiB, 4000 * kGiB), 5, 512).beyond_share());
}

}  // namespace
}  // namespace bathys::model
