// SPDX-License-Identifier: Apache-2.0
#include "core/process_memory.hpp"

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

namespace bathys {
namespace {

// A file system with the files that a kernel would show.
class FakeRoot : public ::testing::Test {
 protected:
  void SetUp() override { write("/proc/meminfo", "MemTotal: 1000 kB\nMemAvailable: 800 kB\nCached: 1 kB\n"); }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& path, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + path).parent_path());
    std::ofstream(root_ + path) << text;
  }
  std::string root_ = std::filesystem::temp_directory_path() / ("bathys-memory-test-" + std::to_string(::getpid()));
};

TEST_F(FakeRoot, WithoutALimitTheNodesFreeMemoryCounts) {
  EXPECT_EQ(available_memory(root_), 800 * 1024);
  write("/proc/self/cgroup", "0::/user.slice\n");
  write("/sys/fs/cgroup/user.slice/memory.max", "max\n");
  write("/sys/fs/cgroup/user.slice/memory.current", "1000\n");
  EXPECT_EQ(available_memory(root_), 800 * 1024);
}

TEST_F(FakeRoot, AJobsLimitCountsAlsoWhenTheStepHasNone) {
  write("/proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write("/sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write("/sys/fs/cgroup/slurm/job_7/step_0/memory.current", "1000\n");
  write("/sys/fs/cgroup/slurm/job_7/memory.max", "400000\n");
  write("/sys/fs/cgroup/slurm/job_7/memory.current", "150000\n");
  write("/sys/fs/cgroup/slurm/job_7/memory.stat", "anon 100000\ninactive_file 50000\n");
  EXPECT_EQ(available_memory(root_), 300000);
}

TEST_F(FakeRoot, AGroupOfTheOlderKindToo) {
  write("/proc/self/cgroup", "9:name=systemd:/\n4:memory:/slurm/job_7\n0::/\n");
  write("/sys/fs/cgroup/memory/slurm/job_7/memory.limit_in_bytes", "300000\n");
  write("/sys/fs/cgroup/memory/slurm/job_7/memory.usage_in_bytes", "100000\n");
  EXPECT_EQ(available_memory(root_), 200000);
}

TEST(ProcessMemory, IsThatOfThisProcess) {
  const ProcessMemory before = process_memory();
  std::vector<char> taken(std::size_t{64} << 20, 'x');
  const ProcessMemory after = process_memory();
  EXPECT_GE(after.resident_bytes - before.resident_bytes, 60 << 20);
  EXPECT_GE(after.peak_bytes, after.resident_bytes - (1 << 20));
  EXPECT_EQ(taken.back(), 'x');
  EXPECT_GT(available_memory(), 0);
}

}  // namespace
}  // namespace bathys
