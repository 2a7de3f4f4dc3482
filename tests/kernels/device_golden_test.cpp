// SPDX-License-Identifier: Apache-2.0
// The device check runs on bare GPU machines without HDF5, so it reads a small text copy of some golden primitives.
// This test keeps the copy true; BATHYS_REWRITE=1 in the environment writes it anew.
#include "support/golden.hpp"

#include <bit>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bathys::test {
namespace {

// A line `name rows columns`, then the values as 8 hexadecimal digits, the bits of a float32 or an int32.
std::string text_of(const GoldenFile& file, const std::string& path) {
  const GoldenArray a = file.array(path);
  std::string text = fmt::format("{} {} {}\n", path, a.rows(), a.row_size());
  for (std::int64_t n = 0; n < a.size(); ++n) {
    const auto at = static_cast<std::size_t>(n);
    const std::uint32_t bits =
        a.f.empty() ? static_cast<std::uint32_t>(a.i[at]) : std::bit_cast<std::uint32_t>(a.f[at]);
    text += fmt::format("{:08x}{}", bits, n % 16 == 15 || n + 1 == a.size() ? '\n' : ' ');
  }
  return text;
}

TEST(DeviceGolden, the_text_copy_holds_what_the_golden_file_holds) {
  const GoldenFile file("ops.h5");
  std::string text;
  const auto add = [&](const std::string& group, std::initializer_list<const char*> names) {
    for (const char* name : names) text += text_of(file, group + "/" + name);
  };
  add("rmsnorm/text", {"x", "w", "y"});
  add("rope/window_small", {"positions", "x", "forward", "inverse"});
  add("hc/m3_short", {"h", "fn", "scale", "base", "pre", "post", "comb", "y", "hc_post"});
  add("gate/sqrtsoftplus_top3", {"x", "w", "bias", "bias_vl", "image_mask", "indices", "weights"});
  add("linear/fp4", {"w", "w_scale", "x", "y"});
  add("sparse_attn/small", {"q", "kv", "idx", "sink", "o"});
  const std::string path = std::string(BATHYS_TEST_DATA) + "/device/golden.txt";
  if (std::getenv("BATHYS_REWRITE") != nullptr) std::ofstream(path) << text;
  std::stringstream found;
  found << std::ifstream(path).rdbuf();
  EXPECT_TRUE(found.str() == text) << path << " differs from ops.h5; run this test with BATHYS_REWRITE=1";
}

}  // namespace
}  // namespace bathys::test
