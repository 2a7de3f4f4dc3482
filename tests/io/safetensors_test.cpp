// SPDX-License-Identifier: Apache-2.0
#include "io/safetensors.hpp"

#include "io/temp_folder.hpp"

#include <cstring>
#include <filesystem>

#include <gtest/gtest.h>

namespace bathys::io {
namespace {

using test::expect_error;
using test::spit;
using test::TempFolder;

std::vector<TensorInfo> parse(std::string_view header, std::uint64_t payload) {
  return parse_safetensors_header(header, 100, payload, "f");
}

std::string file_bytes(std::string_view header, std::string_view payload) {
  const std::uint64_t length = header.size();
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text.append(header).append(payload);
}

TEST(SafetensorsHeader, GivesTensorsByOffset) {
  const auto tensors = parse(
      R"({"b":{"dtype":"BF16","shape":[2,3],"data_offsets":[4,16]},"__metadata__":{"format":"pt","x":{"y":[1,null]}},)"
      R"("s":{"dtype":"F32","shape":[],"data_offsets":[0,4]},"e":{"shape":[0,5],"dtype":"I8","data_offsets":[4,4]}}  )",
      16);
  ASSERT_EQ(tensors.size(), 3U);
  EXPECT_EQ(tensors[0].name, "s");
  EXPECT_EQ(tensors[0].offset, 100U);
  EXPECT_EQ(tensors[1].name, "e");
  EXPECT_EQ(tensors[2].name, "b");
  EXPECT_EQ(tensors[2].offset, 104U);
  EXPECT_EQ(tensors[2].bytes, 12U);
  EXPECT_EQ(tensors[2].shape, (std::vector<std::int64_t>{2, 3}));
  EXPECT_TRUE(parse("{}", 0).empty());
}

TEST(SafetensorsHeader, LeavesUnknownDtypesToWhoWantsThem) {
  const auto tensors = parse(R"({"a":{"dtype":"F4","shape":[3],"data_offsets":[0,2]}})", 2);
  EXPECT_EQ(tensors[0].dtype, "F4");
  EXPECT_FALSE(dtype_bits("F4"));
  for (const char* dtype : {"I8", "F8_E4M3", "F8_E8M0"}) EXPECT_EQ(dtype_bits(dtype), 8);
  EXPECT_EQ(dtype_bits("BF16"), 16);
  EXPECT_EQ(dtype_bits("F32"), 32);
}

struct BadHeader {
  const char* header;
  std::uint64_t payload;
  const char* word;
};

TEST(SafetensorsHeader, RefusesEveryInconsistency) {
  const BadHeader cases[] = {
      {"", 0, "not JSON"},
      {"[]", 0, "a list"},
      {"{} {}", 0, "not JSON"},
      {R"({"a":1})", 0, "a number"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})",
       4, "twice"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"\u0061":{"dtype":"I8","shape":[2],"data_offsets":[2,4]}})",
       4, "twice"},
      {R"({"a":{"dtype":"I8","dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 2, "two members"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2],"x":1}})", 2, "unknown member x"},
      {R"({"a":{"dtype":"I8","shape":[2]}})", 2, "lacks"},
      {R"({"a":{"dtype":8,"shape":[2],"data_offsets":[0,2]}})", 2, "dtype"},
      {R"({"a":{"dtype":"I8","shape":2,"data_offsets":[0,2]}})", 2, "shape"},
      {R"({"a":{"dtype":"I8","shape":["2"],"data_offsets":[0,2]}})", 2, "shape is a string"},
      {R"({"a":{"dtype":"I8","shape":[[2]],"data_offsets":[0,2]}})", 2, "shape is a list"},
      {R"({"a":{"dtype":"I8","shape":[2.0],"data_offsets":[0,2]}})", 2, "shape is the number 2.0"},
      {R"({"a":{"dtype":"I8","shape":[-2],"data_offsets":[0,2]}})", 2, "-2"},
      {R"({"a":{"dtype":"I8","shape":[18446744073709551615],"data_offsets":[0,2]}})", 2, "beyond 2^63"},
      {R"({"a":{"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,2]}})", 2, "more than 2^63"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[2,0]}})", 2, "begin, end"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2,4]}})", 2, "data_offsets"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0]}})", 2, "data_offsets"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,9223372036854775807]}})", 2, "truncated"},
      {R"({"a":{"dtype":"BF16","shape":[2],"data_offsets":[0,2]}})", 2, "mean 4"},
      {R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", 3, "truncated"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})", 3, "belong to none"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[1,3]}})",
       3, "overlap"},
      {R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I8","shape":[2],"data_offsets":[3,5]}})",
       5, "no tensor"},
      {R"({"__metadata__":{},"__metadata__":{}})", 0, "twice"},
      {"{\"a\xff\":{}}", 0, "not JSON"},
  };
  for (const BadHeader& bad : cases) {
    SCOPED_TRACE(bad.header);
    expect_error(ExitCode::bad_input, {"f: ", bad.word}, [&] { parse(bad.header, bad.payload); });
  }
  const std::string whole = R"({"a":{"dtype":"I8","shape":[2],"data_offsets":[0,2]}})";
  expect_error(ExitCode::bad_input, {"f: ", "at byte 54: a NUL byte"},
               [&] { parse(whole + std::string("\0x", 2), 2); });
  expect_error(ExitCode::bad_input, {"f: "}, [] { parse("{\"__metadata__\":" + std::string(100'000, '[') + "}", 0); });
}

TEST(SafetensorsFile, NamesWhatIsNoSuchFile) {
  const TempFolder folder;
  const std::string path = folder.path("x.safetensors");
  const auto refused = [&](std::string_view bytes, std::string_view word) {
    spit(path, bytes);
    expect_error(ExitCode::bad_input, {"x.safetensors", word}, [&] { SafetensorsFile file(path); });
  };
  refused("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n", "Git LFS pointer");
  refused("<!DOCTYPE html><html></html>", "HTML");
  refused("", "empty");
  refused(std::string("\x10\0\0\0\0\0\0", 7), "7 bytes");
  refused(std::string(5000, '\0'), "zeros");
  refused("PK\x03\x04 something else entirely", "not a safetensors file");
  refused(std::string("\x40\0\0\0\0\0\0\0{}", 10), "truncated");
  refused(file_bytes(R"({"a":{"dtype":"I8","shape":[4],"data_offsets":[0,4]}})", "123"), "truncated");
}

TEST(SafetensorsWriter, WritesWhatTheReaderReads) {
  const TempFolder folder;
  const std::string path = folder.path("x.safetensors");
  const std::vector<TensorInfo> tensors = {
      {"b", "I8", {3}, 0, 3}, {"a \"q\"", "F32", {1, 1}, 0, 4}, {"none", "BF16", {0}, 0, 0}};
  SafetensorsWriter writer(path, tensors);
  writer.append(std::as_bytes(std::span("12", 2)));
  writer.append(std::as_bytes(std::span("3abcd", 5)));
  EXPECT_FALSE(std::filesystem::exists(path));
  writer.commit();
  const SafetensorsFile file(path);
  ASSERT_EQ(file.tensors().size(), 3U);
  for (const TensorInfo& tensor : file.tensors()) {
    std::string bytes(tensor.bytes, '?');
    file.file().read_at(tensor.offset, std::as_writable_bytes(std::span(bytes)));
    EXPECT_EQ(bytes, tensor.name == "b" ? "123" : tensor.name == "none" ? "" : "abcd");
  }
  EXPECT_EQ(file.tensors().front().offset % 8, 0U);
  expect_error(ExitCode::internal, {"promised"}, [&] {
    SafetensorsWriter half(folder.path("half"), tensors);
    half.commit();
  });
}

}  // namespace
}  // namespace bathys::io
