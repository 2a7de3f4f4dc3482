// SPDX-License-Identifier: Apache-2.0
#include "parallel/launch.hpp"

#include "parallel/start_support.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(Launch, VariablesOfAnAllocationWithoutAStepAreOneRank) {
  const Launch launch =
      read_launch(with({{"SLURM_JOB_ID", "1"}, {"SLURM_NTASKS", "4"}, {"SLURM_NNODES", "2"}, {"SLURM_PROCID", "0"}}));
  EXPECT_EQ(launch.step_tasks, 1);
  EXPECT_THAT(launch.warnings, IsEmpty());
  EXPECT_NO_THROW(check_launch(launch, 0, false));
  EXPECT_NO_THROW(check_launch(launch, 1, false));
}

TEST(Launch, AStepOfSeveralTasksThatDoNotFindEachOtherIsRefused) {
  const Launch launch = read_launch(with({{"SLURM_STEP_ID", "0"}, {"SLURM_STEP_NUM_TASKS", "4"}}));
  const std::string text = usage_error([&] { check_launch(launch, 0, false); });
  EXPECT_THAT(text, HasSubstr("--mpi=pmix"));
  EXPECT_THAT(text, HasSubstr("--single-process"));
  EXPECT_NO_THROW(check_launch(launch, 0, true));
}

TEST(Launch, WithAServerMpiDecidesAndAWorldOfOneIsRefusedAfter) {
  const Launch launch = read_launch(with({{"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_NAMESPACE", "a"}, {"PMIX_RANK", "0"}}));
  EXPECT_NO_THROW(check_launch(launch, 0, false));
  EXPECT_NO_THROW(check_launch(launch, 4, false));
  EXPECT_THAT(usage_error([&] { check_launch(launch, 1, false); }), HasSubstr("--mpi=pmix"));
}

TEST(Launch, MpirunWithOneRankInsideAWiderStepIsWhatWasAskedFor) {
  const Launch launch = read_launch(with(
      {{"SLURM_STEP_NUM_TASKS", "4"}, {"PMIX_NAMESPACE", "a"}, {"PMIX_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}}));
  EXPECT_NO_THROW(check_launch(launch, 1, false));
}

TEST(Launch, NonsenseWarnsAndCountsAsAbsent) {
  for (const char* const text : {"", "abc", "4(x2)", "-3", "0", "99999999999999"}) {
    const Launch launch = read_launch(with({{"SLURM_STEP_NUM_TASKS", text}}));
    EXPECT_EQ(launch.step_tasks, 1) << text;
    EXPECT_THAT(launch.warnings, ElementsAre(HasSubstr("SLURM_STEP_NUM_TASKS"))) << text;
  }
}

TEST(Launch, TheLauncherSaysTheRankAndWhetherThereIsOneHost) {
  const auto launched = [](std::map<std::string, std::string> more) {
    more.insert({{"PMIX_NAMESPACE", "a"}, {"PMIX_RANK", "3"}});
    return read_launch(with(more));
  };
  EXPECT_EQ(launched({}).rank, 3);
  EXPECT_FALSE(launched({}).one_host);
  EXPECT_TRUE(launched({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}).one_host);
  EXPECT_FALSE(launched({{"OMPI_COMM_WORLD_SIZE", "8"}, {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"}}).one_host);
  EXPECT_TRUE(launched({{"SLURM_STEP_NUM_NODES", "1"}}).one_host);
  EXPECT_FALSE(launched({{"SLURM_STEP_NUM_NODES", "2"}}).one_host);
  EXPECT_FALSE(read_launch(with({{"SLURM_STEP_NUM_NODES", "1"}})).one_host);
}

TEST(Launch, LeftOversOfAnotherLauncherSayNothing) {
  const Launch launch = read_launch(
      with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"OMPI_COMM_WORLD_RANK", "2"}, {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}}));
  EXPECT_EQ(launch.step_tasks, 1);
  EXPECT_FALSE(launch.has_pmix);
  EXPECT_NO_THROW(check_launch(launch, 1, false));
}

}  // namespace
}  // namespace bathys::parallel
