// SPDX-License-Identifier: Apache-2.0
#include "parallel/threads.hpp"

#include "parallel/start_support.hpp"

#include <filesystem>
#include <fstream>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Threads, TheOptionComesFirstThenOmpNumThreads) {
  const CpuLimits limits{.mask_cpus = 8};
  EXPECT_EQ(choose_threads(3, limits, with({{"OMP_NUM_THREADS", "5"}})).threads, 3);
  EXPECT_EQ(choose_threads(0, limits, with({{"OMP_NUM_THREADS", "5"}, {"SLURM_CPUS_PER_TASK", "2"}})).threads, 5);
  EXPECT_EQ(choose_threads(0, limits, with({{"OMP_NUM_THREADS", "4,2"}})).threads, 4);
}

TEST(Threads, OtherwiseTheSmallestOfMaskSlurmAndQuota) {
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 8}, with({})).threads, 8);
  const ThreadChoice slurm = choose_threads(0, {.mask_cpus = 8}, with({{"SLURM_CPUS_PER_TASK", "2"}}));
  EXPECT_EQ(slurm.threads, 2);
  EXPECT_EQ(slurm.source, "SLURM_CPUS_PER_TASK");
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 1}, with({{"SLURM_CPUS_PER_TASK", "2"}})).threads, 1);
  const ThreadChoice quota = choose_threads(0, {.mask_cpus = 8, .cgroup_cpus = 2.5}, with({}));
  EXPECT_EQ(quota.threads, 2);
  EXPECT_EQ(quota.source, "cgroup quota");
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 8, .cgroup_cpus = 0.5}, with({})).threads, 1);
}

TEST(Threads, RanksWithTheSameMaskShareIt) {
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 8, .mask_sharers = 3}, with({})).threads, 2);
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 2, .mask_sharers = 4}, with({})).threads, 1);
  EXPECT_EQ(choose_threads(0, {.mask_cpus = 8, .mask_sharers = 2, .cgroup_cpus = 4.0}, with({})).threads, 2);
}

TEST(Threads, MoreThanTheMaskIsObeyedWithAWarning) {
  const ThreadChoice choice = choose_threads(4, {.mask_cpus = 1}, with({}));
  EXPECT_EQ(choice.threads, 4);
  EXPECT_THAT(choice.warnings, ElementsAre(HasSubstr("--threads asks for 4 threads")));
  EXPECT_THAT(choose_threads(0, {.mask_cpus = 1}, with({{"OMP_NUM_THREADS", "2"}})).warnings,
              ElementsAre(HasSubstr("OMP_NUM_THREADS")));
  EXPECT_THAT(choose_threads(1, {.mask_cpus = 1}, with({})).warnings, IsEmpty());
}

TEST(Threads, NonsenseInVariablesWarnsAndIsIgnored) {
  const ThreadChoice choice =
      choose_threads(0, {.mask_cpus = 8}, with({{"OMP_NUM_THREADS", "many"}, {"SLURM_CPUS_PER_TASK", ""}}));
  EXPECT_EQ(choice.threads, 8);
  EXPECT_THAT(choice.warnings, ElementsAre(HasSubstr("OMP_NUM_THREADS"), HasSubstr("SLURM_CPUS_PER_TASK")));
}

TEST(Threads, TheTightestQuotaOfAllEnclosingControlGroupsCounts) {
  const std::filesystem::path root = std::filesystem::path(::testing::TempDir()) / "bathys_cgroup";
  std::filesystem::remove_all(root);
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root / name).parent_path());
    std::ofstream(root / name) << text << '\n';
  };
  const auto found = [&] { return cgroup_cpus(root.string(), (root / "self").string()); };
  write("self", "0::/job/step");
  EXPECT_FALSE(found());
  write("job/step/cpu.max", "max 100000");
  EXPECT_FALSE(found());
  write("job/cpu.max", "150000 100000");
  EXPECT_EQ(found(), 1.5);
  write("cpu.max", "300000 100000");
  EXPECT_EQ(found(), 1.5);

  write("self", "7:memory:/x\n4:cpu,cpuacct:/job");  // version 1
  write("cpu/job/cpu.cfs_quota_us", "-1");
  write("cpu/job/cpu.cfs_period_us", "100000");
  EXPECT_FALSE(found());
  write("cpu/job/cpu.cfs_quota_us", "50000");
  EXPECT_EQ(found(), 0.5);
  std::filesystem::remove_all(root);
}

TEST(Threads, TheMaskOfThisProcessHasACpu) { EXPECT_GE(count_cpus(affinity_mask()), 1); }

}  // namespace
}  // namespace bathys::parallel
