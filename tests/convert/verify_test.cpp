// SPDX-License-Identifier: Apache-2.0
#include "convert/verify.hpp"

#include "convert/checkpoint_writer.hpp"
#include "convert/convert.hpp"
#include "convert/inspect.hpp"
#include "core/json.hpp"
#include "io/hash.hpp"
#include "io/shard_index.hpp"
#include "io/temp_folder.hpp"

#include <bit>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include <gtest/gtest.h>

namespace bathys::convert {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::kNano;
using test::slurp;
using test::spit;
using test::TempFolder;

constexpr const char* kPython = "/usr/bin/python3";  // the system's own has Debian's h5py

class Shards : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    plain_ = new TempFolder;
    convert(kNano, plain_->path("nano"));
  }
  static void TearDownTestSuite() {
    delete plain_;
    plain_ = nullptr;
  }
  void SetUp() override { fs::copy(plain_->path("nano"), path(), fs::copy_options::recursive); }
  // A copy of the nano shards, to be damaged.
  [[nodiscard]] std::string path(std::string_view file = {}) const {
    return file.empty() ? folder_.path("n") : fmt::format("{}/{}", folder_.path("n"), file);
  }
  void flip(const std::string& file, std::uint64_t offset) const {
    std::string bytes = slurp(path(file));
    bytes[offset] ^= 0x10;
    spit(path(file), bytes);
  }
  // What structure alone shows must be seen with and without checksums, by verify and inspect.
  void refused_by_structure(std::initializer_list<std::string_view> words) const {
    VerifyOptions structure;
    structure.checksums = false;
    expect_error(ExitCode::bad_input, words, [&] { verify(path(), structure); });
    expect_error(ExitCode::bad_input, words, [&] { verify(path()); });
    expect_error(ExitCode::bad_input, words, [&] { inspect_text(path()); });
  }

  TempFolder folder_;
  static TempFolder* plain_;
};
TempFolder* Shards::plain_ = nullptr;

TEST_F(Shards, AreFoundGood) {
  const VerifyReport report = verify(path());
  EXPECT_EQ(report.files, 14);
  EXPECT_EQ(report.bytes, 7'439'252U);
  EXPECT_EQ(report.bytes_read, report.bytes);
}

TEST_F(Shards, ShowAFlippedByteInAnyDataset) {
  const io::ShardIndex index = io::read_shard_index(path());
  for (std::size_t i = 0; i < index.datasets.size(); i += 11) {
    const io::ShardDataset& dataset = index.datasets[i];
    const std::uint64_t at = dataset.offset + dataset.bytes * (i % 5) / 5;
    flip(dataset.file, at);
    expect_error(ExitCode::bad_input, {dataset.file, dataset.name, "bytes 0 to"}, [&] { verify(path()); });
    flip(dataset.file, at);
  }
  verify(path());
}

TEST_F(Shards, ShowAFlippedByteInTheirChecksums) {
  const io::h5::File file = io::h5::File::open(path("layer_00.h5"), io::h5::Mode::read);
  flip("layer_00.h5", file.info("checksums/layers.0.attn.wkv.weight").offset.value() + 3);
  expect_error(ExitCode::bad_input, {"layer_00.h5", "checksums/layers.0.attn.wkv.weight"}, [&] { verify(path()); });
}

// The map of token ids to Engram's classes is stored with its SHA-256; one that is whole but another tokenizer's is
// found by computing it again.
TEST_F(Shards, ShowATokenMapThatIsDamagedOrForeign) {
  io::ShardIndex index = io::read_shard_index(path());
  ASSERT_EQ(index.compressed_token_map.size(), 1024U);
  const std::uint64_t at =
      io::h5::File::open(path("index.h5"), io::h5::Mode::read).info("compressed_token_map").offset.value();
  flip("index.h5", at + 400);
  refused_by_structure({"index.h5", "compressed_token_map", "SHA-256", "damaged"});
  flip("index.h5", at + 400);
  index.compressed_token_map[100] ^= 1;
  fs::remove(path("index.h5"));
  io::write_shard_index(path(), index);
  EXPECT_EQ(io::read_shard_index(path()).compressed_token_map, index.compressed_token_map);
  expect_error(ExitCode::bad_input, {"index.h5", "compressed token map", "not its own"}, [&] { verify(path()); });
}

TEST_F(Shards, ShowTruncationAndMissingFiles) {
  const std::string bytes = slurp(path("layer_03.h5"));
  for (const std::size_t keep : {std::size_t{0}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    spit(path("layer_03.h5"), std::string_view(bytes).substr(0, keep));
    refused_by_structure({"layer_03.h5"});
  }
  fs::remove(path("layer_03.h5"));
  refused_by_structure({"layer_03.h5", "No such file"});
  spit(path("layer_03.h5"), bytes + "tail");
  refused_by_structure({"layer_03.h5"});
}

TEST_F(Shards, ShowAFileOfAnotherModel) {
  const test::NanoCheckpoint checkpoint(folder_.path("ck"));
  convert(folder_.path("ck"), folder_.path("other"));
  fs::copy_file(folder_.path("other/layer_06.h5"), path("layer_06.h5"), fs::copy_options::overwrite_existing);
  refused_by_structure({"layer_06.h5", "belongs to model"});
}

// Same structure, other weights: only the checksums tie a shard to its index.
TEST_F(Shards, ShowAFileOfAnotherTrainingState) {
  test::NanoCheckpoint checkpoint(folder_.path("ck"));
  convert(folder_.path("ck"), folder_.path("before"));
  checkpoint.flip("layers.6.attn_norm.weight", 0);
  convert(folder_.path("ck"), folder_.path("after"));
  // Only what is said of the content tells them apart.
  const io::ShardIndex before = io::read_shard_index(folder_.path("before"));
  const io::ShardIndex after = io::read_shard_index(folder_.path("after"));
  EXPECT_EQ(before.model_id, after.model_id);
  EXPECT_NE(before.content_id(), after.content_id());
  fs::copy_file(folder_.path("after/layer_06.h5"), folder_.path("before/layer_06.h5"),
                fs::copy_options::overwrite_existing);
  expect_error(ExitCode::bad_input, {"layer_06.h5", "layers.6.attn_norm.weight"},
               [&] { verify(folder_.path("before")); });
}

TEST_F(Shards, ShowADifferenceFromTheirCheckpoint) {
  test::NanoCheckpoint checkpoint(folder_.path("ck"));
  convert(folder_.path("ck"), folder_.path("out"));
  checkpoint.flip("layers.5.ffn.experts.7.w2.weight", 9);
  VerifyOptions against;
  against.checkpoint = folder_.path("ck");
  expect_error(ExitCode::bad_input,
               {"layer_05.h5", "layers.5.ffn.experts.w2.weight", fmt::format("byte {}", 7 * 128 * 32 + 9)},
               [&] { verify(folder_.path("out"), against); });
  against.checkpoint = kNano;
  expect_error(ExitCode::bad_input, {"was not converted from"}, [&] { verify(folder_.path("out"), against); });
}

TEST_F(Shards, ShowDatasetsThatWereNeverWritten) {
  const std::vector<std::pair<const char*, const char*>> victims = {{"layer_01.h5", "layers.1.attn.wq_a.weight"},
                                                                    {"layer_01.h5", "layers.1.attn.wq_a.scale"},
                                                                    {"layer_02.h5", "layers.2.attn_norm.weight"},
                                                                    {"layer_04.h5", "layers.4.ffn.experts.w1.weight"},
                                                                    {"engram_01.h5", "layers.1.engram.embed.weight"}};
  for (const auto& [file, dataset] : victims) {
    SCOPED_TRACE(dataset);
    const std::string bytes = slurp(path(file));
    const std::string command =
        fmt::format("{} {}/cases/h5mut.py unalloc {} {} > /dev/null", kPython, BATHYS_TEST_DATA, path(file), dataset);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
    refused_by_structure({file, dataset, "no data"});
    spit(path(file), bytes);
  }
}

TEST_F(Shards, ShowAMissingOrAdditionalDataset) {
  const auto edit = [&](const char* statement) {
    const std::string command =
        fmt::format("{} -c 'import h5py; f = h5py.File(\"{}\", \"r+\"); {}'", kPython, path("global.h5"), statement);
    ASSERT_EQ(std::system(command.c_str()), 0) << command;
  };
  edit("f[\"extra\"] = [1, 2]");
  refused_by_structure({"global.h5", "extra"});
  edit("del f[\"extra\"]; f.attrs[\"format_version\"] = 2");
  refused_by_structure({"global.h5", "version 1"});
  fs::copy_file(plain_->path("nano/global.h5"), path("global.h5"), fs::copy_options::overwrite_existing);
  edit("del f[\"norm.weight\"]");
  refused_by_structure({"global.h5", "norm.weight is missing"});
}

TEST_F(Shards, ShowADamagedOrLengthenedIndexAndWhatHelps) {
  const std::string bytes = slurp(path("index.h5"));
  spit(path("index.h5"), bytes + "tail");
  refused_by_structure({"index.h5", "the file was changed", "rerun bathys convert"});
  for (const std::size_t keep : {std::size_t{0}, std::size_t{100}, bytes.size() / 2, bytes.size() - 1}) {
    spit(path("index.h5"), std::string_view(bytes).substr(0, keep));
    refused_by_structure({"index.h5", "rerun bathys convert"});
  }
}

TEST_F(Shards, WithoutAnIndexAreNoModel) {
  fs::remove(path("index.h5"));
  refused_by_structure({"index.h5", "bathys convert"});
}

TEST_F(Shards, AreDescribedWithTheirSourcesAndConfig) {
  const Json json = parse_json(inspect_json(path()), "inspect", ExitCode::internal);
  EXPECT_EQ(json["config"], parse_json(slurp(kNano + "/config.json"), "config.json", ExitCode::internal));
  EXPECT_EQ(json["sources"][0]["file"], "config.json");
  EXPECT_EQ(json["sources"][0]["sha256"], io::sha256_hex(slurp(kNano + "/config.json")));
  EXPECT_EQ(json["n_tensors"], 1271);
  EXPECT_EQ(json["bytes"], 7'439'252);
  EXPECT_EQ(json["content_id"], io::read_shard_index(path()).content_id());
  ASSERT_EQ(json["ranks"].size(), 5U);  // to 16: more ranks than its 16 experts no copy may have
  EXPECT_EQ(json["ranks"][0]["bytes"], 7'439'252);
  EXPECT_LT(json["ranks"][3]["bytes"], 4'000'000);
  EXPECT_FALSE(json["ranks"][0].contains("fits"));
  const Json memory = parse_json(inspect_json(path(), 4'000'000 / 0x1p30), "inspect", ExitCode::internal);
  std::int64_t before = INT64_MAX;
  for (const Json& layout : memory["ranks"]) {
    EXPECT_EQ(layout["ranks"], layout["groups"].get<int>() * layout["tensor"].get<int>());
    EXPECT_LE(layout["tensor"], 8);
    const auto bytes = layout["bytes"].get<std::int64_t>();
    EXPECT_LE(bytes, before);
    EXPECT_EQ(layout["fits"], bytes <= 4'000'000);
    before = bytes;
  }
  EXPECT_NE(inspect_text(path(), 0.001).find("does not fit"), std::string::npos);
  EXPECT_EQ(json["datasets"].size(), json["n_datasets"]);
  EXPECT_NE(inspect_text(path()).find("1271 in"), std::string::npos);
}

// The reader that docs/file_formats.md shows must work as it stands there.
TEST_F(Shards, AreReadByTheDocumentedPython) {
  const std::string docs = slurp(std::string(BATHYS_TEST_DATA) + "/../docs/file_formats.md");
  const std::size_t begin = docs.find("```python\n");
  ASSERT_NE(begin, std::string::npos);
  const std::size_t end = docs.find("```", begin + 10);
  spit(folder_.path("reader.py"), docs.substr(begin + 10, end - begin - 10));
  spit(folder_.path("check.py"), fmt::format(R"(
import sys, numpy as np
sys.path.insert(0, "{}")
from reader import read
folder = "{}"
def show(x): print(*x.shape, *(float(v).hex() for v in x.ravel()[[0, 1, 37, 100, -1]]))
for name in ["norm.weight", "hc_x", "layers.0.attn.wkv.weight", "layers.2.ffn.experts.w2.weight", "layers.1.engram.embed.weight"]:
    show(read(folder, name if name != "hc_x" else "layers.0.hc_attn_fn"))
)",
                                             folder_.path(), path()));
  const std::string command = fmt::format("{} {} > {}", kPython, folder_.path("check.py"), folder_.path("shown"));
  ASSERT_EQ(std::system(command.c_str()), 0);

  // The same numbers from the checkpoint, by the definitions of the formats.
  auto tensors = test::read_loose(kNano);
  const auto e8m0 = [](char code) { return std::ldexp(1.0, static_cast<unsigned char>(code) - 127); };
  const auto e4m3 = [](char byte) {
    const unsigned code = static_cast<unsigned char>(byte);
    const int exponent = static_cast<int>(code >> 3U & 15U);
    const double mantissa = static_cast<double>(code & 7U) / 8.0;
    const double value = exponent > 0 ? std::ldexp(1 + mantissa, exponent - 7) : std::ldexp(mantissa, -6);
    return code > 127 ? -value : value;
  };
  const auto e2m1 = [](unsigned code) {
    constexpr double kValues[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
    return code > 7 ? -kValues[code - 8] : kValues[code];
  };
  const auto line = [](const std::string& shape, const auto& value, std::int64_t n) {
    std::string text = shape;
    for (const std::int64_t i : {std::int64_t{0}, std::int64_t{1}, std::int64_t{37}, std::int64_t{100}, n - 1}) {
      text += fmt::format(" {:a}", static_cast<double>(value(i)));
    }
    return text;
  };
  std::vector<std::string> expected;
  const std::string norm = test::find(tensors, "norm.weight").bytes;
  expected.push_back(line(
      "128",
      [&](std::int64_t i) {
        std::uint32_t bits = 0;
        std::memcpy(reinterpret_cast<char*>(&bits) + 2, norm.data() + 2 * i, 2);
        return static_cast<double>(std::bit_cast<float>(bits));
      },
      128));
  const std::string hc = test::find(tensors, "layers.0.hc_attn_fn").bytes;
  expected.push_back(line(
      "24 512",
      [&](std::int64_t i) {
        float value = 0;
        std::memcpy(&value, hc.data() + 4 * i, 4);
        return static_cast<double>(value);
      },
      24 * 512));
  const std::string wkv = test::find(tensors, "layers.0.attn.wkv.weight").bytes;
  const std::string wkv_scale = test::find(tensors, "layers.0.attn.wkv.scale").bytes;
  expected.push_back(line(
      "64 128",
      [&](std::int64_t i) {
        return e4m3(wkv[static_cast<std::size_t>(i)]) *
               e8m0(wkv_scale[static_cast<std::size_t>(i / 128 / 32 * 4 + i % 128 / 32)]);
      },
      64 * 128));
  expected.push_back(line(
      "16 128 64",
      [&](std::int64_t i) {
        const std::int64_t expert = i / (128 * 64);
        const std::int64_t row = i / 64 % 128;
        const std::int64_t column = i % 64;
        const std::string name = fmt::format("layers.2.ffn.experts.{}.w2", expert);
        const auto byte = static_cast<unsigned char>(
            test::find(tensors, name + ".weight").bytes[static_cast<std::size_t>(row * 32 + column / 2)]);
        return e2m1(column % 2 == 0 ? byte & 15U : byte >> 4U) *
               e8m0(test::find(tensors, name + ".scale").bytes[static_cast<std::size_t>(row * 2 + column / 32)]);
      },
      16 * 128 * 64));
  const std::string table = test::find(tensors, "layers.1.engram.embed.weight").bytes;
  const std::string table_scale = test::find(tensors, "layers.1.engram.embed.scale").bytes;
  expected.push_back(line(
      "24562 32",
      [&](std::int64_t i) {
        return e4m3(table[static_cast<std::size_t>(i)]) * e8m0(table_scale[static_cast<std::size_t>(i / 32)]);
      },
      24562 * 32));
  const auto normalized = [](const std::string& text) {
    std::vector<std::string> words;
    std::istringstream stream(text);
    for (std::string word; stream >> word;) {
      words.push_back(word.find("0x") == std::string::npos ? word
                                                           : fmt::format("{}", std::strtod(word.c_str(), nullptr)));
    }
    return words;
  };
  std::string all;
  for (const std::string& text : expected) all += text + "\n";
  EXPECT_EQ(normalized(slurp(folder_.path("shown"))), normalized(all));
}

}  // namespace
}  // namespace bathys::convert
