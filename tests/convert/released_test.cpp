// SPDX-License-Identifier: Apache-2.0
// The released model's 96,085 tensors without their payload: files that are holes on disk, of the released sizes.
#include "catalog/dataset_table.hpp"
#include "convert/checkpoint_writer.hpp"
#include "convert/inspect.hpp"
#include "convert/shard_writer.hpp"
#include "convert/source_model.hpp"
#include "convert/synthetic_tokenizer.hpp"
#include "core/process_memory.hpp"
#include "core/timer.hpp"
#include "io/temp_folder.hpp"
#include "parallel/collectives.hpp"
#include "weights/schedule.hpp"
#include "weights/shard_model.hpp"

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include <gtest/gtest.h>

namespace bathys::convert {
namespace {

using test::spit;
using test::TempFolder;

constexpr std::int64_t kReleasedTensors = 96'085;
constexpr std::int64_t kReleasedBytes = 510'286'023'000;

const std::string kConfig = std::string(BATHYS_TEST_DATA) + "/../inputs/models/released.json";

// Headers as the release has them, in an order that is not the table's; every payload a hole.
void write_headers(const std::string& folder, const config::ModelConfig& config) {
  std::filesystem::create_directories(folder);
  std::filesystem::copy_file(kConfig, folder + "/config.json");
  spit(folder + "/tokenizer.json", synthetic_tokenizer_json(config));
  auto table = catalog::tensor_table(config);
  std::stable_sort(table.begin(), table.end(),
                   [](const auto& a, const auto& b) { return a.file != b.file ? a.file < b.file : a.name < b.name; });
  const int n_files = catalog::released_file_count(config);
  std::string map;
  for (auto first = table.begin(); first != table.end();) {
    const auto last = std::find_if(first, table.end(), [&](const auto& spec) { return spec.file != first->file; });
    const std::string file = catalog::released_file_name(first->file, n_files);
    std::string header;
    std::uint64_t at = 0;
    for (; first != last; ++first) {
      const std::uint64_t end = at + static_cast<std::uint64_t>(first->bytes());
      header +=
          fmt::format(R"({}"{}":{{"dtype":"{}","shape":{},"data_offsets":[{},{}]}})", header.empty() ? '{' : ',',
                      first->name, catalog::safetensors_dtype(first->dtype), io::shape_text(first->shape), at, end);
      map += fmt::format(R"({}"{}":"{}")", map.empty() ? "" : ",", first->name, file);
      at = end;
    }
    header += '}';
    const std::uint64_t length = header.size();
    spit(folder + "/" + file, std::string(reinterpret_cast<const char*>(&length), sizeof length) + header);
    std::filesystem::resize_file(folder + "/" + file, sizeof length + length + at);
  }
  spit(folder + "/model.safetensors.index.json", R"({"metadata":{},"weight_map":{)" + map + "}}");
}

TEST(ReleasedModel, GoesThroughTheIndexPathsOfConvertAndOfTheLoader) {
  const TempFolder folder;
  const auto config = config::read_model_config(test::slurp(kConfig), kConfig);
  write_headers(folder.path("ck"), config);

  const ProcessMemory before = process_memory();
  Timer timer;
  const SourceModel source(folder.path("ck"));
  const double match_s = timer.restart();
  EXPECT_EQ(source.n_tensors(), kReleasedTensors);
  EXPECT_EQ(source.checkpoint->files().size(), 48U);
  std::uint64_t bytes = 0;
  for (const auto& [name, place] : source.checkpoint->tensors()) bytes += place.tensor->bytes;
  EXPECT_EQ(bytes, static_cast<std::uint64_t>(kReleasedBytes));
  // Offsets beyond 2^32, in a tensor that no memory holds.
  const auto& table = source.checkpoint->tensors().at("layers.1.engram.embed.weight");
  std::vector<std::byte> end(16, std::byte{1});
  table.file->file().read_at(table.tensor->offset + table.tensor->bytes - end.size(), end);
  EXPECT_EQ(end, std::vector<std::byte>(16));
  const ProcessMemory matched = process_memory();

  std::filesystem::create_directory(folder.path("shards"));
  std::string last;
  for (const catalog::DatasetSpec& dataset : source.table) {
    if (dataset.file != last) create_empty_shard(source, folder.path("shards"), dataset.file);
    last = dataset.file;
  }
  io::ShardIndex index = source.index;
  collect_shards(source, folder.path("shards"), index);
  io::write_shard_index(folder.path("shards"), index);
  const double index_s = timer.restart();

  const auto world = parallel::make_single_collectives();
  const weights::ShardModel model = weights::open_shards(*world, folder.path("shards"));
  EXPECT_EQ(model.table.size(), index.datasets.size());
  std::int64_t scheduled = 0;
  for (const weights::Round& round : weights::make_schedule(model.table, {})) {
    for (const weights::Part& part : round.parts) scheduled += part.bytes;
  }
  EXPECT_EQ(scheduled, kReleasedBytes);
  const double open_s = timer.restart();
  EXPECT_NE(inspect_text(folder.path("shards")).find(fmt::format("{} in", kReleasedTensors)), std::string::npos);
  const double structure_s = timer.restart();
  const ProcessMemory after = process_memory();
  std::printf(
      "released headers: matched in %.2f s, +%.0f MiB; 48 shard files and their index in %.2f s; opened in %.2f s; "
      "structure read in %.2f s; peak %.0f MiB\n",
      match_s, static_cast<double>(matched.resident_bytes - before.resident_bytes) / 0x1p20, index_s, open_s,
      structure_s, static_cast<double>(after.peak_bytes) / 0x1p20);
  // Headers, index and tokenizer, whatever the payload: a rank can have a hundred neighbours on its node.
  EXPECT_LT(after.peak_bytes, std::int64_t{1} << 30);
}

}  // namespace
}  // namespace bathys::convert
