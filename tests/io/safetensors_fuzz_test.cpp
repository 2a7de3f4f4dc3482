// SPDX-License-Identifier: Apache-2.0
// A million mutated headers: whatever the bytes, the answer is tensors inside the payload, each where no other is, or
// an Error of one line.  What else can go wrong is for the address sanitizer.  The quick tier takes as many as it can
// in some seconds.
#include "core/error.hpp"
#include "core/timer.hpp"
#include "io/safetensors.hpp"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::io {
namespace {

constexpr std::int64_t kMutations = 1'000'000;
constexpr double kQuickSeconds = 8;
constexpr std::uint64_t kPayload = 2066;
constexpr std::uint64_t kPayloadOffset = 100;

const std::vector<std::string> kSeeds = {
    R"({"__metadata__":{"format":"pt"},"a.weight":{"dtype":"F8_E4M3","shape":[32,64],"data_offsets":[0,2048]},)"
    R"("a.scale":{"dtype":"F8_E8M0","shape":[1,2],"data_offsets":[2048,2050]},)"
    R"("n":{"dtype":"F32","shape":[],"data_offsets":[2050,2054]},"z":{"dtype":"BF16","shape":[2,3],"data_offsets":[2054,2066]}})",
    R"({"w":{"data_offsets":[16,2064],"shape":[16,128],"dtype":"I8"},"b":{"shape":[4,2,1],"dtype":"BF16","data_offsets":[0,16]},)"
    R"("empty":{"shape":[0,9],"dtype":"F32","data_offsets":[16,16]},"c":{"dtype":"U8","shape":[2],"data_offsets":[2064,2066]}}   )",
    R"({"x":{"dtype":"I8","shape":[2066],"data_offsets":[0,2066]}})",
};

using namespace std::string_view_literals;
constexpr std::string_view kBytes = "{}[]\",:0123456789.eE-+\\u \n\0x\xff\xc3\x80"sv;
const std::vector<std::string_view> kWords = {"18446744073709551615",
                                              "9223372036854775808",
                                              "9223372036854775807",
                                              "4294967296",
                                              "-1",
                                              "1e3",
                                              "1.0",
                                              "\"data_offsets\"",
                                              "\"dtype\"",
                                              "\"shape\"",
                                              "\"__metadata__\"",
                                              "\"F4\"",
                                              "\"F8_E8M0\"",
                                              "null",
                                              "true",
                                              "[[",
                                              "{\"a\":",
                                              "\\u0000",
                                              "\\ud800",
                                              "[0,0]",
                                              "[0,2066]",
                                              "[2066,2066]"};

class Mutator {
 public:
  explicit Mutator(std::uint32_t seed) : random_(seed) {}

  std::string next() {
    std::string text = kSeeds[below(kSeeds.size())];
    for (std::size_t edits = 1 + below(4); edits > 0; --edits) {
      edit(text);
      if (text.empty()) text = "{";
    }
    return text;
  }

 private:
  std::size_t below(std::size_t n) { return random_() % n; }

  void edit(std::string& text) {
    const std::size_t at = below(text.size());
    switch (below(6)) {
      case 0:
        text[at] = kBytes[below(kBytes.size())];
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        text.insert(at, 1, kBytes[below(kBytes.size())]);
        break;
      case 3:
        text.insert(at, text.substr(below(text.size()), below(80)));
        break;
      case 4:
        text.insert(at, kWords[below(kWords.size())]);
        break;
      default:
        text.resize(at);
        break;
    }
  }

  std::mt19937 random_;
};

TEST(SafetensorsHeaderFuzz, TensorsThatLieApartInThePayloadOrAnErrorOfOneLine) {
  const bool full = std::getenv("BATHYS_FULL") != nullptr;
  const Timer timer;
  Mutator mutator(20261130);
  std::int64_t done = 0;
  std::int64_t accepted = 0;
  for (; done < kMutations && (full || done % 1000 != 0 || timer.seconds() < kQuickSeconds); ++done) {
    const std::string text = mutator.next();
    // An exact copy on the heap: a byte read behind the header is an error for the sanitizer.
    const std::vector<char> header(text.begin(), text.end());
    try {
      const auto tensors = parse_safetensors_header({header.data(), header.size()}, kPayloadOffset, kPayload, "file");
      std::uint64_t end = kPayloadOffset;
      for (const TensorInfo& tensor : tensors) {
        ASSERT_GE(tensor.offset, end) << text;
        ASSERT_LE(tensor.bytes, kPayload) << text;
        end = tensor.offset + tensor.bytes;
      }
      ASSERT_LE(end, kPayloadOffset + kPayload) << text;
      ++accepted;
    } catch (const Error& error) {
      ASSERT_EQ(static_cast<int>(error.code()), static_cast<int>(ExitCode::bad_input)) << text;
      ASSERT_TRUE(std::string_view(error.what()).starts_with("file: ")) << error.what();
    }
  }
  std::printf("%lld headers in %.1f s, %lld of them accepted\n", static_cast<long long>(done), timer.seconds(),
              static_cast<long long>(accepted));
  EXPECT_GT(accepted, 0);
  EXPECT_LT(accepted, done / 2);
}

}  // namespace
}  // namespace bathys::io
