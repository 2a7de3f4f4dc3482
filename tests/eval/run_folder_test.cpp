// SPDX-License-Identifier: Apache-2.0
#include "eval/run_folder.hpp"

#include "io/temp_folder.hpp"

#include <filesystem>

#include <gtest/gtest.h>
#include <sys/stat.h>

namespace bathys::eval {
namespace {

using bathys::test::expect_error;
using bathys::test::spit;
using bathys::test::TempFolder;

const RunIdentity kIdentity = {{"checkpoint", "abc"}, {"seed", "0"}};

TEST(RunFolder, KeepsTheTimeOfItsFirstStart) {
  const TempFolder folder;
  const std::string path = folder.path("a/b");
  const std::string first = RunFolder(path, kIdentity).first_start();
  EXPECT_EQ(RunFolder(path, kIdentity).first_start(), first);
}

TEST(RunFolder, RefusesWhatChangesNumbersByName) {
  const TempFolder folder;
  { const RunFolder first(folder.path(), kIdentity); }
  expect_error(ExitCode::usage, {"seed = 0", "now it is 1"}, [&] {
    const RunFolder second(folder.path(), {{"checkpoint", "abc"}, {"seed", "1"}});
  });
  expect_error(ExitCode::usage, {"image_root"}, [&] {
    const RunFolder second(folder.path(), {{"checkpoint", "abc"}, {"seed", "0"}, {"image_root", "x"}});
  });
}

TEST(RunFolder, BelongsToOneProcessAtATime) {
  const TempFolder folder;
  const RunFolder holder(folder.path(), kIdentity);
  expect_error(ExitCode::usage, {"in use by process"}, [&] { const RunFolder other(folder.path(), kIdentity); });
}

TEST(RunFolder, RefusesALockThatIsNoFile) {
  const TempFolder folder;
  ASSERT_EQ(::mkfifo(folder.path("run.lock").c_str(), 0600), 0);
  expect_error(ExitCode::usage, {"run.lock is no regular file"},
               [&] { const RunFolder run(folder.path(), kIdentity); });
}

TEST(RunFolder, RefusesAJournalWithoutAManifest) {
  const TempFolder folder;
  std::filesystem::create_directory(folder.path("journal"));
  expect_error(ExitCode::usage, {"manifest.json"}, [&] { const RunFolder run(folder.path(), kIdentity); });
}

TEST(RunFolder, RefusesADamagedManifest) {
  const TempFolder folder;
  spit(folder.path("manifest.json"), "{\"schema\":");
  expect_error(ExitCode::bad_input, {"manifest.json"}, [&] { const RunFolder run(folder.path(), kIdentity); });
}

}  // namespace
}  // namespace bathys::eval
