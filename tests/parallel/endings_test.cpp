// SPDX-License-Identifier: Apache-2.0
// How a job ends: exit code, one cause line, nobody left waiting.  And how it starts among variables of somebody
// else's job.
#include "core/timer.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/wait.h>

namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Ending {
  int code = -1;       // 124: it ran past the limit
  std::string output;  // both streams
  double seconds = 0;
};

Ending run(const std::string& command) {
  const bathys::Timer timer;
  Ending ending;
  std::FILE* const pipe = popen(("timeout -k 5 40 env " + command + " 2>&1").c_str(), "r");
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;)
    ending.output.append(buffer.data(), n);
  const int status = pclose(pipe);
  ending.code = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  ending.seconds = timer.seconds();
  return ending;
}

Ending run_alone(const std::string& mode, const std::string& environment = "") {
  return run(environment + " " PROBE " " + mode);
}

Ending run_ranks(int n, const std::string& mode, const std::string& environment = "") {
  return run(environment + " " MPIRUN " -n " + std::to_string(n) + " " PROBE " " + mode);
}

int count(const std::string& text, const std::string& part) {
  int n = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

constexpr const char* kCause = "bathys: error: ";

// Soon, with its code and one cause line.
void expect_ended_by_the_watchdog(const Ending& ending) {
  EXPECT_EQ(ending.code, 70) << ending.output;
  EXPECT_LT(ending.seconds, 25) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 1) << ending.output;
}

TEST(Endings, AJobThatSucceedsPrintsOneStartLine) {
  const Ending ending = run_ranks(3, "finish --threads 1");
  EXPECT_EQ(ending.code, 0) << ending.output;
  EXPECT_EQ(count(ending.output, "event=start"), 1) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("ranks=3 nodes=1"));
  EXPECT_THAT(ending.output, HasSubstr("threads=1 threads_from=\"--threads\""));
}

TEST(Endings, AnAgreedErrorEndsAllInOrderWithOneLine) {
  const Ending ending = run_ranks(3, "gate");
  EXPECT_EQ(ending.code, 66) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 1) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("bathys: error: rank 2: shard_03.h5 is truncated\n"));
  EXPECT_THAT(ending.output, Not(HasSubstr("MPI_ABORT")));
}

TEST(Endings, ARankThatThrowsInTheMiddleEndsTheOthers) {
  const Ending ending = run_ranks(3, "throw");
  EXPECT_EQ(ending.code, 66) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 1) << ending.output;
  EXPECT_THAT(ending.output, HasSubstr("a cause in the middle of work"));
}

TEST(Endings, ManyRanksThatThrowAtOnceStillPrintOneLine) {
  const Ending ending = run_ranks(4, "throw_all");
  EXPECT_EQ(ending.code, 70) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 1) << ending.output;
}

TEST(Endings, AloneAnErrorIsItsLineAndItsCode) {
  const Ending ending = run_alone("throw");
  EXPECT_EQ(ending.code, 66) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 1) << ending.output;
  EXPECT_THAT(ending.output, Not(HasSubstr("MPI_ABORT")));
}

TEST(Endings, AStuckRankIsFoundByTheWatchdog) {
  const Ending ending = run_ranks(3, "hang --watchdog 2");
  expect_ended_by_the_watchdog(ending);
  EXPECT_THAT(ending.output, ::testing::ContainsRegex("rank 0 in \"step 7\" for [0-9.]+ s, waiting in all_reduce_sum"));
  EXPECT_THAT(ending.output,
              ::testing::ContainsRegex("rank 2 in \"a loop without end\" for [0-9.]+ s, outside collectives"));
}

TEST(Endings, AProcessThatDoesNotRunIsNamed) {
  const Ending ending = run_ranks(3, "freeze --watchdog 2");
  expect_ended_by_the_watchdog(ending);
  EXPECT_THAT(ending.output, ::testing::ContainsRegex("rank 2 in \"step 9\" for [0-9.]+ s, NOT RUNNING for"));
  EXPECT_THAT(ending.output, Not(::testing::ContainsRegex("rank [01] in \"step 9\" for [0-9.]+ s, NOT RUNNING")));
}

TEST(Endings, AProcessThatDoesNotRunEndsTheJobThoughNobodyWaitsForIt) {
  const Ending ending = run_ranks(3, "freeze_apart --watchdog 1.5");
  expect_ended_by_the_watchdog(ending);
  EXPECT_THAT(ending.output, ::testing::ContainsRegex("error: rank 2 has not run for [0-9.]+ s \\(watchdog limit 5 s"));
  EXPECT_THAT(ending.output, ::testing::ContainsRegex("rank 2 in \"step 9\" for [0-9.]+ s, NOT RUNNING for"));
  EXPECT_THAT(ending.output, Not(::testing::ContainsRegex("rank [01] in \"step [0-9]+\" for [0-9.]+ s, NOT RUNNING")));
}

TEST(Endings, AProcessThatDoesNotRunWhereMpiBeginsOrEndsEndsTheJob) {
  const std::array<std::array<const char*, 2>, 3> cases = {{
      {"freeze_at_start", "no progress for [0-9.]+ s .*rank 1 in \"start\" for [0-9.]+ s, waiting in MPI_Init"},
      {"freeze_when_done", "rank 2 has not run for [0-9.]+ s"},
      {"freeze_at_the_end", "no progress for [0-9.]+ s .*rank [01] in \"end\" for [0-9.]+ s, waiting in MPI_Finalize"},
  }};
  for (const auto& [mode, words] : cases) {
    const Ending ending = run_ranks(3, std::string(mode) + " --watchdog 2");
    expect_ended_by_the_watchdog(ending);
    EXPECT_THAT(ending.output, ::testing::ContainsRegex(words)) << mode;
  }
}

TEST(Endings, ARankThatHasEndedIsNotMissed) {
  const Ending ending = run_ranks(2, "leave_apart --watchdog 1.5");
  EXPECT_EQ(ending.code, 0) << ending.output;
}

TEST(Endings, SlowProgressIsProgress) {
  const Ending ending = run_ranks(2, "slow --watchdog 1.5");
  EXPECT_EQ(ending.code, 0) << ending.output;
}

TEST(Endings, AJobThatIsSuspendedAsAWholeGoesOn) {
  const Ending ending =
      run("sh -c '" PROBE " slow --watchdog 1 & p=$!; sleep 1; kill -STOP $p; sleep 4; kill -CONT $p; wait $p'");
  EXPECT_EQ(ending.code, 0) << ending.output;
}

TEST(Endings, AKilledRankEndsTheOthers) {
  const Ending ending = run_ranks(3, "kill");
  EXPECT_EQ(ending.code, 137) << ending.output;
  EXPECT_LT(ending.seconds, 25);
}

TEST(Endings, AStopAskedOfOneRankStopsAllWithSeventyFive) {
  const Ending ending = run_ranks(3, "stop");
  EXPECT_EQ(ending.code, 75) << ending.output;
  EXPECT_EQ(count(ending.output, kCause), 0) << ending.output;
}

TEST(Starts, VariablesOfSomebodyElsesJobAreOneRank) {
  const std::string allocation = "SLURM_JOB_ID=1 SLURM_NTASKS=4 SLURM_NNODES=2 SLURM_PROCID=0 SLURM_LOCALID=0";
  const std::string in_salloc =
      " SLURM_JOBID=1 SLURM_NODELIST='n[1-2]' SLURM_JOB_NODELIST='n[1-2]' SLURM_TASKS_PER_NODE='2(x2)'";
  for (const std::string& environment :
       {allocation, allocation + in_salloc, allocation + " SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=1",
        allocation + in_salloc + " SLURM_STEP_ID=0 SLURM_STEPID=0 SLURM_STEP_NUM_TASKS=1 SLURM_STEP_NODELIST=n1",
        std::string("SLURM_JOB_ID=1"), std::string("OMPI_COMM_WORLD_SIZE=4 OMPI_COMM_WORLD_RANK=2"),
        std::string("PMI_RANK=1 PMI_SIZE=4")}) {
    const Ending ending = run_alone("finish", environment);
    EXPECT_EQ(ending.code, 0) << environment << '\n' << ending.output;
    EXPECT_THAT(ending.output, HasSubstr("ranks=1")) << environment;
    EXPECT_THAT(ending.output, Not(HasSubstr("level=warn"))) << environment;
    EXPECT_LT(ending.seconds, 10) << environment;
  }
}

TEST(Starts, NonsenseInSlurmsVariablesWarns) {
  for (const char* const value : {"", "'4(x2)'", "abc"}) {
    const Ending ending = run_alone("finish", std::string("SLURM_JOB_ID=1 SLURM_NTASKS=") + value);
    EXPECT_EQ(ending.code, 0) << ending.output;
    EXPECT_THAT(ending.output, HasSubstr("level=warn")) << value;
    EXPECT_THAT(ending.output, HasSubstr("SLURM_NTASKS")) << value;
  }
}

TEST(Starts, TasksThatDoNotFindEachOtherAreRefusedByOneOfThem) {
  const std::string step = "SLURM_JOB_ID=1 SLURM_NODELIST=n1 SLURM_STEP_ID=0 SLURM_STEP_NUM_TASKS=4 SLURM_PROCID=";
  const Ending first = run_alone("finish", step + "0");
  EXPECT_EQ(first.code, 2) << first.output;
  EXPECT_LT(first.seconds, 10);
  EXPECT_EQ(count(first.output, kCause), 1) << first.output;
  EXPECT_THAT(first.output, HasSubstr("--mpi=pmix"));
  EXPECT_THAT(first.output, HasSubstr("--single-process"));
  const Ending second = run_alone("finish", step + "1");
  EXPECT_EQ(second.code, 2);
  EXPECT_EQ(second.output, "");
  EXPECT_EQ(run_alone("finish --single-process", step + "0").code, 0);
  EXPECT_EQ(run_ranks(2, "finish", step + "0").code, 0);
  EXPECT_EQ(run_ranks(1, "finish", step + "0").code, 0);
}

TEST(Starts, ThreadsComeFromTheMaskThenSlurmAndTheOptionGoesFirst) {
  const std::string unset = "-u OMP_NUM_THREADS ";
  EXPECT_THAT(run_alone("finish", unset + "taskset -c 0").output, HasSubstr("threads=1 threads_from=\"affinity\""));
  EXPECT_THAT(run_alone("finish", unset + "SLURM_CPUS_PER_TASK=1").output, HasSubstr("threads=1 threads_from="));
  EXPECT_THAT(run_alone("finish", "OMP_NUM_THREADS=1").output, HasSubstr("threads=1 threads_from=\"OMP_NUM_THREADS\""));
  const Ending greedy = run_alone("finish --threads 2", unset + "taskset -c 0");
  EXPECT_THAT(greedy.output, HasSubstr("threads=2 threads_from=\"--threads\""));
  EXPECT_THAT(greedy.output, HasSubstr("may run on 1 CPUs"));
}

}  // namespace
