// SPDX-License-Identifier: Apache-2.0
#include "io/hdf5.hpp"

#include "io/shard_file.hpp"
#include "io/shard_index.hpp"
#include "io/temp_folder.hpp"

#include <array>
#include <filesystem>

#include <gtest/gtest.h>
#include <unistd.h>

namespace bathys::io {
namespace {

using test::expect_error;
using test::slurp;
using test::spit;
using test::TempFolder;

void write_sample(const std::string& path) {
  h5::File file = h5::File::create(path, {1, 64});
  file.set_attribute("/", "format", "sample");
  file.create_group("g");
  file.create_dataset("a.b", h5::Type::u16, {2, 3});
  file.set_attribute("a.b", "logical_shape", {2, 3});
  const std::vector<std::uint16_t> values = {1, 2, 3, 4, 5, 6};
  file.write("a.b", h5::Type::u16, std::as_bytes(std::span(values)));
  file.create_dataset("g/x", h5::Type::f32, {5});
  const std::vector<float> floats(5, 1.5F);
  file.write("g/x", h5::Type::f32, std::as_bytes(std::span(floats)));
  file.close();
}

TEST(Hdf5, ReadsWhatItWrote) {
  const TempFolder folder;
  write_sample(folder.path("s.h5"));
  const h5::File file = h5::File::open(folder.path("s.h5"), h5::Mode::read);
  EXPECT_EQ(file.text_attribute("/", "format"), "sample");
  EXPECT_EQ(file.integers_attribute("a.b", "logical_shape"), (std::vector<std::int64_t>{2, 3}));
  EXPECT_FALSE(file.text_attribute("/", "absent"));
  EXPECT_EQ(file.members("/"), (std::vector<std::string>{"a.b", "g"}));
  EXPECT_TRUE(file.has("g/x"));
  EXPECT_FALSE(file.has("g/y"));
  EXPECT_FALSE(file.has("h/y"));
  const h5::DatasetInfo info = file.info("a.b");
  EXPECT_EQ(info.shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_EQ(info.bytes, 12U);
  ASSERT_TRUE(info.offset);
  EXPECT_EQ(*info.offset % 64, 0U);
  // The plain read that the loader does finds the same bytes.
  std::vector<std::byte> plain(12);
  ReadFile(folder.path("s.h5")).read_at(*info.offset, plain);
  EXPECT_EQ(plain, file.read("a.b", 100));
  expect_error(ExitCode::bad_input, {"s.h5", "no dataset c"}, [&] { return file.info("c"); });
  expect_error(ExitCode::bad_input, {"a.b", "12 bytes", "at most 11"}, [&] { return file.read("a.b", 11); });
}

TEST(Hdf5, WritesTheSameBytesEveryTime) {
  const TempFolder folder;
  write_sample(folder.path("1.h5"));
  ::sleep(1);  // a stored time would differ
  write_sample(folder.path("2.h5"));
  EXPECT_EQ(slurp(folder.path("1.h5")), slurp(folder.path("2.h5")));
}

TEST(Hdf5, AlignsLargeDatasets) {
  const TempFolder folder;
  h5::File file = h5::File::create(folder.path("a.h5"), {1 << 20, 4 << 20});
  file.create_dataset("big", h5::Type::u8, {3 << 20});
  file.create_dataset("bigger", h5::Type::u8, {5 << 20});
  EXPECT_EQ(file.info("big").offset.value() % (4 << 20), 0U);
  EXPECT_EQ(file.info("bigger").offset.value() % (4 << 20), 0U);
}

TEST(Hdf5, NamesWhatIsNoHdf5File) {
  const TempFolder folder;
  const std::string path = folder.path("x.h5");
  const auto refused = [&](std::string_view bytes, std::string_view word) {
    spit(path, bytes);
    expect_error(ExitCode::bad_input, {"x.h5", word}, [&] { h5::File::open(path, h5::Mode::read); });
  };
  refused("version https://git-lfs.github.com/spec/v1\n", "Git LFS pointer");
  refused("", "empty");
  refused("plainly something else", "HDF5: ");
  write_sample(path);
  refused(slurp(path).substr(0, 700), "truncated");
}

TEST(Hdf5, RefusesATextTooLongForAnAttribute) {
  const TempFolder folder;
  h5::File file = h5::File::create(folder.path("x.h5"), {});
  expect_error(ExitCode::internal, {"use a dataset"},
               [&] { file.set_attribute("/", "long", std::string(70'000, 'x')); });
}

TEST(Hdf5, NamesAPlaceThatCannotBeWritten) {
  const TempFolder folder;
  expect_error(ExitCode::usage, {"none/x.h5", "created"}, [&] { h5::File::create(folder.path("none/x.h5"), {}); });
}

ShardIndex sample_index() {
  ShardIndex index;
  index.model_id = "abc";
  index.sources = {{"config.json", 2, "00"}};
  index.datasets = {{"a", "f.h5", "BF16", {2, 3}, 512, 12, "ff"}};
  index.file_bytes = {{"f.h5", 4096}};
  index.config_json = std::string(160'000, ' ') + "{}";
  index.tokenizer_json = "{\"t\":1}";
  index.compressed_token_map = {0, 1, 1, 2};
  return index;
}

void expect_same(const ShardIndex& a, const ShardIndex& b) {
  EXPECT_EQ(a.to_json(), b.to_json());
  EXPECT_EQ(a.datasets, b.datasets);
  EXPECT_EQ(a.sources, b.sources);
  EXPECT_EQ(a.config_json, b.config_json);
  EXPECT_EQ(a.tokenizer_json, b.tokenizer_json);
  EXPECT_EQ(a.tokenizer_config_json, b.tokenizer_config_json);
  EXPECT_EQ(a.compressed_token_map, b.compressed_token_map);
}

TEST(ShardIndex, ComesBackFromBytesAndFromDisk) {
  const TempFolder folder;
  const ShardIndex index = sample_index();
  expect_same(ShardIndex::from_bytes(index.to_bytes()), index);
  write_shard_index(folder.path(), index);
  expect_same(read_shard_index(folder.path()), index);
  expect_error(ExitCode::bad_input, {"cut"}, [&] {
    auto bytes = index.to_bytes();
    bytes.pop_back();
    ShardIndex::from_bytes(bytes);
  });
}

TEST(ShardIndex, NoticesAChangedByteInEveryPart) {
  const TempFolder folder;
  write_shard_index(folder.path(), sample_index());
  const std::string path = folder.path("index.h5");
  const std::string good = slurp(path);
  for (const char* part : {"{\"t\":1}", "\"model_id\"", "        {}"}) {
    std::string bad = good;
    bad[bad.find(part) + 2] ^= 1;
    spit(path, bad);
    expect_error(ExitCode::bad_input, {"index.h5"}, [&] { read_shard_index(folder.path()); });
  }
  std::filesystem::remove(path);
  expect_error(ExitCode::bad_input, {"index.h5", "bathys convert"}, [&] { read_shard_index(folder.path()); });
}

TEST(ShardIndex, IsComparedWithTheTableDatasetByDataset) {
  const ShardIndex index = sample_index();
  std::vector<ShardDataset> table = index.datasets;
  require_datasets(index, table, "f");
  table[0].shape = {3, 2};
  expect_error(ExitCode::bad_input, {"[2, 3]", "[3, 2]"}, [&] { require_datasets(index, table, "f"); });
  table = index.datasets;
  table.push_back(table[0]);
  expect_error(ExitCode::bad_input, {"lacks a"}, [&] { require_datasets(index, table, "f"); });
  expect_error(ExitCode::bad_input, {"1 datasets"}, [&] { require_datasets(index, {}, "f"); });
}

TEST(PieceHash, ReadsAsTheUsualHexadecimalDigest) {
  std::array<std::byte, kHashBytes> bytes{};
  const Hash128 hash = xxh3_128(std::string_view("abc"));
  store_hash(hash, bytes);
  std::string hex;
  for (const std::byte b : bytes) hex += fmt::format("{:02x}", std::to_integer<int>(b));
  EXPECT_EQ(hex, hash.hex());
  EXPECT_EQ(load_hash(bytes), hash);
}

}  // namespace
}  // namespace bathys::io
