// SPDX-License-Identifier: Apache-2.0
#include "io/checkpoint.hpp"

#include "io/temp_folder.hpp"

#include <ctime>
#include <filesystem>

#include <gtest/gtest.h>

namespace bathys::io {
namespace {

using test::expect_error;
using test::spit;
using test::TempFolder;

void write_shard(const std::string& path, const std::vector<std::string>& names) {
  std::vector<TensorInfo> tensors;
  tensors.reserve(names.size());
  for (const std::string& name : names) tensors.push_back({name, "I8", {2}, 0, 2});
  SafetensorsWriter writer(path, tensors);
  for (std::size_t i = 0; i < names.size(); ++i) writer.append(std::as_bytes(std::span("xy", 2)));
  writer.commit();
}

void write_index(const TempFolder& folder, std::string_view map) {
  spit(folder.path("model.safetensors.index.json"),
       fmt::format(R"({{"metadata":{{"total_size":6}},"weight_map":{}}})", map));
}

TEST(Checkpoint, TakesTheFilesOfTheIndex) {
  const TempFolder folder;
  write_shard(folder.path("1.safetensors"), {"a", "b"});
  write_shard(folder.path("2.safetensors"), {"c"});
  write_shard(folder.path("stray.safetensors"), {"a"});
  write_index(folder, R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"})");
  const Checkpoint checkpoint(folder.path());
  EXPECT_EQ(checkpoint.files().size(), 2U);
  EXPECT_EQ(checkpoint.tensors().size(), 3U);
  EXPECT_EQ(checkpoint.tensors().at("a").file->path(), folder.path("1.safetensors"));
}

TEST(Checkpoint, WithoutAnIndexTakesAllFilesAndRefusesANameTwice) {
  const TempFolder folder;
  expect_error(ExitCode::bad_input, {"no *.safetensors"}, [&] { Checkpoint c(folder.path()); });
  write_shard(folder.path("1.safetensors"), {"a", "b"});
  write_shard(folder.path("2.safetensors"), {"c"});
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), 3U);
  write_shard(folder.path("3.safetensors"), {"b"});
  expect_error(ExitCode::bad_input, {"3.safetensors", "tensor b", "1.safetensors"},
               [&] { Checkpoint c(folder.path()); });
}

TEST(Checkpoint, NeverLeavesItsFolder) {
  const TempFolder outer;
  write_shard(outer.path("outside.safetensors"), {"a"});
  std::filesystem::create_directory(outer.path("model"));
  const std::string index = outer.path("model/model.safetensors.index.json");
  const std::vector<std::string> entries = {R"("../outside.safetensors")",
                                            fmt::format(R"("{}")", outer.path("outside.safetensors")),
                                            R"("x/../../outside.safetensors")",
                                            R"("..")",
                                            R"("a.safetensors\u0000.txt")",
                                            R"("")",
                                            "3",
                                            "null",
                                            R"(["a.safetensors"])"};
  for (const std::string& file : entries) {
    SCOPED_TRACE(file);
    spit(index, fmt::format(R"({{"weight_map":{{"a":{}}}}})", file));
    expect_error(ExitCode::bad_input, {"index.json", "tensor a"}, [&] { Checkpoint c(outer.path("model")); });
  }
}

TEST(Checkpoint, RefusesAnIndexThatDisagreesWithTheFiles) {
  const TempFolder folder;
  write_shard(folder.path("1.safetensors"), {"a", "b"});
  write_shard(folder.path("2.safetensors"), {"c"});
  const auto refused = [&](std::string_view map, std::initializer_list<std::string_view> words) {
    SCOPED_TRACE(map);
    write_index(folder, map);
    expect_error(ExitCode::bad_input, words, [&] { Checkpoint c(folder.path()); });
  };
  refused(R"({"a":"1.safetensors","c":"2.safetensors"})", {"tensor b", "does not list"});
  refused(R"({"a":"1.safetensors","b":"2.safetensors","c":"2.safetensors"})", {"tensor b", "is in 1.safetensors"});
  refused(R"({"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors","d":"2.safetensors"})",
          {"tensor d", "does not hold"});
  refused(R"({"a":"1.safetensors","b":"1.safetensors","c":"9.safetensors"})", {"9.safetensors", "No such file"});
  refused(R"({"a":"1.safetensors","a":"1.safetensors"})", {"tensor a twice"});
  refused(R"({})", {"no weight_map"});
  refused(R"([])", {"a list"});
  const std::string whole = R"({"weight_map":{"a":"1.safetensors","b":"1.safetensors","c":"2.safetensors"}})";
  spit(folder.path("model.safetensors.index.json"), whole);
  EXPECT_NO_THROW(Checkpoint(folder.path()));
  spit(folder.path("model.safetensors.index.json"), whole + std::string("\0x", 2));
  expect_error(ExitCode::bad_input, {"index.json", "a NUL byte"}, [&] { Checkpoint c(folder.path()); });
  spit(folder.path("model.safetensors.index.json"), "version https://git-lfs.github.com/spec/v1\n");
  expect_error(ExitCode::bad_input, {"index.json", "Git LFS"}, [&] { Checkpoint c(folder.path()); });
}

// CPU seconds that a checkpoint of one file and so many tensors takes to open.
double seconds_to_open(int n) {
  const TempFolder folder;
  std::vector<std::string> names;
  std::string map = "{";
  for (int i = 0; i < n; ++i) {
    names.push_back(fmt::format("layers.{}.ffn.experts.{}.w1.weight", i / 2400, i));
    map += fmt::format("{}\"{}\":\"1.safetensors\"", i == 0 ? "" : ",", names.back());
  }
  write_shard(folder.path("1.safetensors"), names);
  write_index(folder, map + "}");
  const std::clock_t start = std::clock();
  EXPECT_EQ(Checkpoint(folder.path()).tensors().size(), static_cast<std::size_t>(n));
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(Checkpoint, ReadsAnIndexInTimeThatGrowsWithItsTensorsOnly) {
  // Ten times as many: ten times the time, and a little; a hundred times were it quadratic.
  EXPECT_LT(seconds_to_open(50'000), 40 * seconds_to_open(5'000));
}

}  // namespace
}  // namespace bathys::io
