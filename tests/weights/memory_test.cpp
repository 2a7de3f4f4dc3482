// SPDX-License-Identifier: Apache-2.0
// What loading takes in a rank's memory: its own weights and a window, whatever the model's size.
#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "core/process_memory.hpp"
#include "io/temp_folder.hpp"
#include "weights/load.hpp"

#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::weights {
namespace {

// Pieces of 16 MiB: those read ahead and the one handed over, and one each for what is packed, sent and received.
constexpr std::int64_t kWindowBytes = (3 + 3) * std::int64_t{16} << 20;
constexpr std::int64_t kSlackBytes = std::int64_t{24} << 20;  // MPI's buffers, threads, the index

// Holds what it is given, once.
class HoldingSink : public WeightSink {
 public:
  void begin(const catalog::DatasetSpec& /*dataset*/, const catalog::Slice& slice) override {
    held_.emplace_back(static_cast<std::size_t>(slice.bytes));
    at_ = 0;
  }
  void piece(const catalog::DatasetSpec& /*d*/, std::int64_t /*first*/, std::int64_t /*n*/,
             std::span<const std::byte> bytes) override {
    std::memcpy(held_.back().data() + at_, bytes.data(), bytes.size());
    at_ += bytes.size();
  }
  void end(const catalog::DatasetSpec& /*dataset*/) override {}

 private:
  std::vector<std::vector<std::byte>> held_;
  std::size_t at_ = 0;
};

TEST(LoadMemory, IsTheRanksOwnWeightsAndAWindow) {
  const auto world = parallel::make_world_collectives();
  std::optional<test::TempFolder> folder;
  if (world->rank() == 0) {
    folder.emplace();
    test::write_random_checkpoint(folder->path("ck"), test::nano_with_tables(300'000, 32), test::kNano, 100'000'000);
    convert::convert(folder->path("ck"), folder->path("n"));
  }
  const std::string shards = world->broadcast_host(folder ? folder->path("n") : std::string(), 0);
  for (const bool direct : {false, true}) {
    const ShardModel model = open_shards(*world, shards);
    HoldingSink sink;
    LoadOptions options;
    options.direct = direct;
    std::ofstream("/proc/self/clear_refs") << "5";  // the peak from here on
    const ProcessMemory before = process_memory();
    const LoadReport report = load(*world, model, one_group_places(world->size()), sink, options);
    const std::int64_t growth = process_memory().peak_bytes - before.resident_bytes;
    const auto held = static_cast<std::int64_t>(report.bytes_held);
    std::printf("rank %d of %d, direct %d: holds %.1f MB, grew by %.1f MB at most\n", world->rank(), world->size(),
                direct ? 1 : 0, static_cast<double>(held) / 1e6, static_cast<double>(growth) / 1e6);
    EXPECT_GE(growth, held / 2);  // measured at all
    EXPECT_LE(growth, held + kWindowBytes + kSlackBytes);
    world->barrier();
  }
}

}  // namespace
}  // namespace bathys::weights
