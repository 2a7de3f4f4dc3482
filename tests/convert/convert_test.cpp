// SPDX-License-Identifier: Apache-2.0
#include "convert/convert.hpp"

#include "catalog/dataset_table.hpp"
#include "config/model_config.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/shard_writer.hpp"
#include "convert/verify.hpp"
#include "io/atomic_file.hpp"
#include "io/hdf5.hpp"
#include "io/output.hpp"
#include "io/temp_folder.hpp"

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace bathys::convert {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::expect_same_folder;
using test::kNano;
using test::slurp;
using test::spit;
using test::TempFolder;

class EveryModel : public testing::TestWithParam<const char*> {
 protected:
  const std::string model_ = std::string(BATHYS_TEST_DATA) + "/" + GetParam();
};
INSTANTIATE_TEST_SUITE_P(Models, EveryModel,
                         testing::Values("../inputs/models/nano", "golden/base/model", "golden/plain/model",
                                         "golden/vision/model"));

TEST_P(EveryModel, KeepsEveryPayloadByte) {
  const TempFolder folder;
  const ConvertReport report = convert(model_, folder.path());
  auto tensors = test::read_loose(model_);
  EXPECT_EQ(report.tensors, static_cast<std::int64_t>(tensors.size()));
  // Through HDF5, not through our own offsets: a stack is its members one after another.
  std::uint64_t bytes = 0;
  for (const auto& spec :
       catalog::dataset_table(config::read_model_config(slurp(model_ + "/config.json"), "config.json"))) {
    const auto file = io::h5::File::open(folder.path(spec.file), io::h5::Mode::read);
    EXPECT_EQ(file.text_attribute(spec.name, "dtype"), std::string(catalog::safetensors_dtype(spec.dtype)));
    const std::string stored = file.read_text(spec.name, 1 << 30);
    std::string expected;
    for (const std::string& name : spec.tensors) expected += test::find(tensors, name).bytes;
    ASSERT_TRUE(stored == expected) << spec.name;
    bytes += stored.size();
  }
  EXPECT_EQ(report.bytes_written, bytes);
  VerifyOptions against;
  against.checkpoint = model_;
  EXPECT_EQ(verify(folder.path(), against).bytes_read, bytes);
}

TEST(Convert, WritesTheSameBytesFromTheSameTensorsInAnyOrderAndFiling) {
  const TempFolder folder;
  convert(kNano, folder.path("1"));
  convert(kNano, folder.path("2"));
  expect_same_folder(folder.path("1"), folder.path("2"));
  // Other files, no index: the index and the model's identity differ, the shards' payload does not.
  auto tensors = test::read_loose(kNano);
  std::reverse(tensors.begin(), tensors.end());
  test::write_checkpoint(folder.path("ck"), kNano, tensors, 5);
  convert(folder.path("ck"), folder.path("3"));
  for (const char* name : {"embed.weight", "layers.3.ffn.experts.w1.weight"}) {
    const std::string file = std::string(name).starts_with("embed") ? "global.h5" : "layer_03.h5";
    EXPECT_EQ(io::h5::File::open(folder.path("3/" + file), io::h5::Mode::read).read_text(name, 1 << 30),
              io::h5::File::open(folder.path("1/" + file), io::h5::Mode::read).read_text(name, 1 << 30));
  }
}

TEST(Convert, TakesTheNameVariantsOfTheOfficialConverter) {
  const TempFolder folder;
  auto tensors = test::read_loose(kNano);
  for (test::LooseTensor& tensor : tensors) {
    const auto replace = [&](std::string_view from, std::string_view to) {
      if (const auto at = tensor.name.find(from); at != std::string::npos) tensor.name.replace(at, from.size(), to);
    };
    replace(".attn.", ".self_attn.");
    replace(".ffn.", ".mlp.");
    if (tensor.name.ends_with(".scale")) replace(".scale", ".weight_scale_inv");
    replace("gate.bias", "gate.e_score_correction_bias");
    tensor.name.insert(0, "model.");
  }
  tensors.push_back({"mtp.0.embed.weight", "BF16", {1}, "xx"});
  tensors.push_back({"model.mtp.2.head.weight", "BF16", {1}, "xx"});
  test::write_checkpoint(folder.path("ck"), kNano, tensors);
  convert(folder.path("ck"), folder.path("variants"));
  convert(kNano, folder.path("plain"));
  for (const auto& entry : fs::directory_iterator(folder.path("plain"))) {
    const std::string name = entry.path().filename().string();
    if (!name.ends_with(".h5") || name == "index.h5") continue;
    const auto plain = io::h5::File::open(folder.path("plain/" + name), io::h5::Mode::read);
    const auto variant = io::h5::File::open(folder.path("variants/" + name), io::h5::Mode::read);
    EXPECT_EQ(plain.members("/"), variant.members("/"));
    for (const std::string& dataset : plain.members("/")) {
      if (!plain.is_dataset(dataset)) continue;
      EXPECT_EQ(plain.read(dataset, 1 << 30), variant.read(dataset, 1 << 30)) << dataset;
    }
  }
}

TEST(Convert, GoesOnWithTheFilesThatAreWhole) {
  const TempFolder folder;
  convert(kNano, folder.path("whole"));
  const std::string out = folder.path("resumed");
  convert(kNano, out);
  EXPECT_EQ(convert(kNano, out).bytes_written, 0U);
  for (const char* lost : {"index.h5", "layer_03.h5", "global.h5"}) fs::remove(out + "/" + lost);
  spit(out + "/layer_03.h5.partial", "left by a killed run");
  struct stat before {};
  ::stat((out + "/layer_04.h5").c_str(), &before);
  const ConvertReport report = convert(kNano, out);
  EXPECT_EQ(report.files_kept, report.files - 2);
  struct stat after {};
  ::stat((out + "/layer_04.h5").c_str(), &after);
  EXPECT_EQ(before.st_ino, after.st_ino);
  expect_same_folder(out, folder.path("whole"));
}

TEST(Convert, WritesADamagedFileAnew) {
  const TempFolder folder;
  convert(kNano, folder.path("whole"));
  const std::string out = folder.path("out");
  convert(kNano, out);
  fs::resize_file(out + "/layer_02.h5", 5000);
  spit(out + "/layer_05.h5", "");
  EXPECT_EQ(convert(kNano, out).files_kept, 12);
  spit(out + "/index.h5", slurp(out + "/index.h5").substr(0, 3000));
  convert(kNano, out);
  expect_same_folder(out, folder.path("whole"));
}

TEST(Convert, DoesNotMixTwoStatesOfACheckpoint) {
  const TempFolder folder;
  test::NanoCheckpoint checkpoint(folder.path("ck"));
  const std::string out = folder.path("out");
  // A run that was interrupted after some files: there is no index yet, but a record of what it read.
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit limit{500'000, 500'000};
    io::guard_standard_descriptors();
    ::setrlimit(RLIMIT_FSIZE, &limit);
    try {
      convert(folder.path("ck"), out);
    } catch (const Error& error) {
      ::_exit(static_cast<int>(error.code()));
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_EQ(WEXITSTATUS(status), 75);
  ASSERT_FALSE(fs::exists(out + "/index.h5"));
  EXPECT_FALSE(fs::exists(out + "/convert.state.partial"));
  for (const auto& entry : fs::directory_iterator(out))
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  // Then the checkpoint gets other weights of the same shapes.
  checkpoint.flip("embed.weight", 100);
  const ConvertReport report = convert(folder.path("ck"), out);
  EXPECT_EQ(report.bytes_written, 7'439'252U);
  convert(folder.path("ck"), folder.path("fresh"));
  expect_same_folder(out, folder.path("fresh"));
}

// The identity of a model rests on its headers, which other weights of the same shapes share.
TEST(Convert, WritesAFinishedFolderAnewWhenTheCheckpointHasOtherWeights) {
  const TempFolder folder;
  test::NanoCheckpoint checkpoint(folder.path("ck"));
  const std::string out = folder.path("out");
  convert(folder.path("ck"), out);
  EXPECT_EQ(convert(folder.path("ck"), out).bytes_written, 0U);
  checkpoint.flip("embed.weight", 100);
  EXPECT_EQ(convert(folder.path("ck"), out).bytes_written, 7'439'252U);
  convert(folder.path("ck"), folder.path("fresh"));
  expect_same_folder(out, folder.path("fresh"));
}

TEST(Convert, SurvivesBeingKilledAtAnyTime) {
  const TempFolder folder;
  convert(kNano, folder.path("whole"));
  const std::string out = folder.path("killed");
  int killed = 0;
  const int rounds = std::getenv("BATHYS_FULL") != nullptr ? 400 : 50;
  for (int round = 0; round < rounds; ++round) {
    const pid_t child = ::fork();
    if (child == 0) {
      convert(kNano, out);
      ::_exit(0);
    }
    std::this_thread::sleep_for(std::chrono::microseconds(2000 + 5300 * (round % 17)));
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    killed += WIFSIGNALED(status) ? 1 : 0;
    if (fs::exists(out + "/index.h5")) {
      verify(out);  // what has an index is whole
      fs::remove_all(out);
    } else {
      expect_error(ExitCode::bad_input, {"index.h5"}, [&] { verify(out); });
    }
  }
  EXPECT_GT(killed, rounds / 4);
  convert(kNano, out);
  for (const auto& entry : fs::directory_iterator(out)) {  // a shard left half-written was overwritten, not adopted
    EXPECT_FALSE(entry.path().string().ends_with(".partial")) << entry.path();
  }
  expect_same_folder(out, folder.path("whole"));
}

// Rows of 96 bytes in tables of several pieces: large enough for marks within a file.
TEST(Convert, GoesOnInTheMiddleOfALargeFile) {
  const TempFolder folder;
  test::write_random_checkpoint(folder.path("ck"), test::nano_with_tables(30'000, 96), kNano);
  convert(folder.path("ck"), folder.path("whole"));
  const SourceModel source(folder.path("ck"));
  const std::string out = folder.path("out");
  fs::create_directory(out);
  ShardWriteOptions options;
  options.source_state = "state";
  options.mark_bytes = std::uint64_t{20} << 20;
  const auto steps = [](ShardWriter& writer, int n) {
    while (n-- > 0) ASSERT_TRUE(writer.step());
  };
  const auto written = [&] { return fs::exists(out + "/engram_01.h5.partial.mark"); };
  {
    ShardWriter writer(source, out, "engram_01.h5", options);
    EXPECT_EQ(writer.resumed_bytes(), 0U);
    steps(writer, 3);  // scales and two pieces of the table: beyond a mark, as a kill leaves it
  }
  ASSERT_TRUE(written());
  {
    ShardWriter changed(source, out, "layer_00.h5", options);  // another file has nothing to do with it
    EXPECT_EQ(changed.resumed_bytes(), 0U);
    changed.discard();
  }
  {
    ShardWriter writer(source, out, "engram_01.h5", options);
    EXPECT_GT(writer.resumed_bytes(), io::kPieceBytes);
    steps(writer, 1);
    writer.suspend();  // as a signal leaves it
  }
  std::uint64_t resumed = 0;
  {
    ShardWriter writer(source, out, "engram_01.h5", options);
    resumed = writer.resumed_bytes();
    EXPECT_GT(resumed, 2 * io::kPieceBytes);
    while (writer.step()) {
    }
  }
  EXPECT_FALSE(written());
  EXPECT_TRUE(slurp(out + "/engram_01.h5") == slurp(folder.path("whole/engram_01.h5")));
  // What was begun from another state of the checkpoint, or does not look like its mark, is begun anew.
  fs::remove(out + "/engram_01.h5");
  {
    ShardWriter writer(source, out, "engram_01.h5", options);
    steps(writer, 3);
  }
  {
    ShardWriteOptions other = options;
    other.source_state = "another state";
    EXPECT_EQ(ShardWriter(source, out, "engram_01.h5", other).resumed_bytes(), 0U);
  }
  ASSERT_FALSE(written());
  {
    ShardWriter writer(source, out, "engram_01.h5", options);
    steps(writer, 3);
  }
  ASSERT_TRUE(written());
  fs::resize_file(out + "/engram_01.h5.partial", 1000);
  EXPECT_EQ(ShardWriter(source, out, "engram_01.h5", options).resumed_bytes(), 0U);
  // A whole conversion clears what is left, and gives what an uninterrupted one does.
  convert(folder.path("ck"), out);
  expect_same_folder(out, folder.path("whole"));
}

TEST(Convert, RefusesAFolderItMustNotOrCannotWrite) {
  const TempFolder folder;
  convert(kNano, folder.path("nano"));
  expect_error(ExitCode::usage, {"another model"},
               [&] { convert(std::string(BATHYS_TEST_DATA) + "/golden/base/model", folder.path("nano")); });
  fs::remove(folder.path("nano/index.h5"));
  expect_error(ExitCode::usage, {"another model"},
               [&] { convert(std::string(BATHYS_TEST_DATA) + "/golden/base/model", folder.path("nano")); });
  EXPECT_TRUE(fs::exists(folder.path("nano/layer_00.h5")));
  expect_error(ExitCode::usage, {"empty name"}, [&] { convert(kNano, ""); });
  spit(folder.path("file"), "x");
  expect_error(ExitCode::usage, {"file"}, [&] { convert(kNano, folder.path("file")); });
  expect_error(ExitCode::usage, {"file/below"}, [&] { convert(kNano, folder.path("file/below")); });
  const io::FolderLock lock(folder.path("nano"));
  expect_error(ExitCode::usage, {"in use by process"}, [&] { convert(kNano, folder.path("nano")); });
}

TEST(Convert, StopsOnAFullDiskAndGoesOnAfterwards) {
  const TempFolder folder;
  convert(kNano, folder.path("whole"));
  const std::string out = folder.path("out");
  for (const rlim_t bytes : {1000U, 9000U, 40'000U, 100'000U, 470'000U, 600'000U}) {
    const pid_t child = ::fork();
    if (child == 0) {
      io::guard_standard_descriptors();
      const rlimit limit{bytes, bytes};
      ::setrlimit(RLIMIT_FSIZE, &limit);
      try {
        convert(kNano, out);
      } catch (const Error& error) {
        std::exit(static_cast<int>(error.code()));  // as main does: what HDF5 left behind must not crash here
      }
      std::exit(0);
    }
    int status = 0;
    ::waitpid(child, &status, 0);
    EXPECT_EQ(WIFEXITED(status) ? WEXITSTATUS(status) : -1, 75) << bytes;
    expect_error(ExitCode::bad_input, {"index.h5"}, [&] { verify(out); });
  }
  convert(kNano, out);
  expect_same_folder(out, folder.path("whole"));
}

#ifdef __SANITIZE_ADDRESS__
constexpr bool kMemoryIsMeasured = false;  // the sanitizer keeps what is freed for a while
#else
constexpr bool kMemoryIsMeasured = true;
#endif

// Two tables of 115 MB, in the full tier of 3 GB, holes in the source: memory must not follow their size.
TEST(Convert, StreamsLargeTensorsInBoundedMemory) {
  const TempFolder folder;
  const std::int64_t size = std::getenv("BATHYS_FULL") != nullptr ? 8'000'000 : 300'000;
  test::write_random_checkpoint(folder.path("ck"), test::nano_with_tables(size, 32), kNano, 100'000'000);
  const pid_t child = ::fork();
  if (child == 0) {
    rusage before{};
    ::getrusage(RUSAGE_SELF, &before);
    convert(folder.path("ck"), folder.path("out"));
    rusage after{};
    ::getrusage(RUSAGE_SELF, &after);
    ::_exit(!kMemoryIsMeasured || after.ru_maxrss - before.ru_maxrss < 64 * 1024 ? 0 : 1);  // KiB
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(status, 0);
  EXPECT_GT(fs::file_size(folder.path("out/engram_01.h5")), static_cast<std::uint64_t>(12 * 32 * size));
}

// In a process and mount namespace of its own, which ends with the process.
int convert_onto_a_small_disk(const std::string& checkpoint, const std::string& disk, std::uint64_t disk_bytes,
                              const std::string& copy) {
  constexpr int kNoDisk = 77;
  const auto mount_disk = [&](unsigned long flags, std::uint64_t bytes) {
    return ::mount("tmpfs", disk.c_str(), "tmpfs", flags, fmt::format("size={}", bytes).c_str()) == 0;
  };
  if (::unshare(CLONE_NEWNS) != 0 || ::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNoDisk;
  if (!mount_disk(0, disk_bytes)) return kNoDisk;
  const std::string out = disk + "/out";
  ConvertOptions options;
  options.mark_bytes = std::uint64_t{20} << 20;
  try {
    convert(checkpoint, out, options);
    return 1;
  } catch (const Error& error) {
    if (error.code() != ExitCode::stopped) return 2;
  }
  if (fs::exists(out + "/engram_01.h5") || !fs::exists(out + "/engram_01.h5.partial.mark")) return 3;
  if (!mount_disk(MS_REMOUNT, 4 * disk_bytes)) return kNoDisk;
  if (convert(checkpoint, out, options).bytes_resumed < io::kPieceBytes) return 4;
  fs::copy(out, copy, fs::copy_options::recursive);
  return 0;
}

TEST(Convert, AFullDiskLosesNothingThatIsOnItForGood) {
  const TempFolder folder;
  test::write_random_checkpoint(folder.path("ck"), test::nano_with_tables(36'000, 96), kNano);
  convert(folder.path("ck"), folder.path("whole"));
  const io::ShardIndex index = io::read_shard_index(folder.path("whole"));
  // Room for all files up to the first table, but for its last piece.  (What alignment leaves free takes none.)
  std::uint64_t room = 0;
  std::string last;
  for (const io::ShardDataset& dataset : index.datasets) {
    if (dataset.file == last) continue;
    if (last == "engram_01.h5") break;
    last = dataset.file;
    struct stat status {};
    ASSERT_EQ(::stat(folder.path("whole/" + last).c_str(), &status), 0);
    room += static_cast<std::uint64_t>(status.st_blocks) * 512;
  }
  ASSERT_EQ(last, "engram_01.h5");
  fs::create_directory(folder.path("disk"));
  const pid_t child = ::fork();
  if (child == 0) {
    int code = 5;
    try {
      code = convert_onto_a_small_disk(folder.path("ck"), folder.path("disk"), room - (std::uint64_t{4} << 20),
                                       folder.path("copy"));
    } catch (const std::exception& error) {
      std::fprintf(stderr, "%s\n", error.what());
    }
    ::_exit(code);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (WEXITSTATUS(status) == 77) GTEST_SKIP() << "no file system can be mounted here";
  ASSERT_EQ(WEXITSTATUS(status), 0);
  expect_same_folder(folder.path("copy"), folder.path("whole"));
}

}  // namespace
}  // namespace bathys::convert
