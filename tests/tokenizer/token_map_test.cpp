// SPDX-License-Identifier: Apache-2.0
#include "tokenizer/token_map.hpp"

#include "support/golden.hpp"
#include "tokenizer/fixtures.hpp"

#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace bathys::tokenizer {
namespace {

using test::large_tokenizer;

TEST(TokenMap, IsThePublishedOneForTheLargeTokenizer) {
  const CompressedTokenMap map = compressed_token_map(large_tokenizer());
  EXPECT_EQ(map.n_classes, 99092);
  EXPECT_EQ(map.sha256, "c60a86322ec17b4142bfef3c57a8d81fb428550cdf487f88a4320cb59fe46481");
  for (const int id : {455, 671, 270, 1805, 20852}) EXPECT_EQ(map.class_of[static_cast<std::size_t>(id)], 237);
  for (const int id : {223, 201, 200}) EXPECT_EQ(map.class_of[static_cast<std::size_t>(id)], 174);
  EXPECT_EQ(std::count(map.class_of.begin(), map.class_of.end(), 174), 163);
  for (const int id : {619, 16462, 71}) EXPECT_EQ(map.class_of[static_cast<std::size_t>(id)], 39);
  for (const int id : {19, 14771}) EXPECT_EQ(map.class_of[static_cast<std::size_t>(id)], 19);
  EXPECT_EQ(map.class_of[1845], map.class_of[118]);  // "·" as text and the byte spelled so
  EXPECT_EQ(map.class_of[2], 2);
  EXPECT_EQ(map.class_of[128000], 97812);
  EXPECT_EQ(map.class_of[129279], 99091);
}

TEST(TokenMap, HasTheNanoModelsClasses) { EXPECT_EQ(compressed_token_map(test::nano_tokenizer()).n_classes, 867); }

TEST(TokenMap, EqualsTheGoldenMapsOfTheSmallModels) {
  for (const std::string model : {"base", "vision"}) {
    const auto golden = bathys::test::GoldenFile(model + "/golden.h5").array("engram/compressed_map");
    const Tokenizer tokenizer = Tokenizer::from_file(BATHYS_TEST_DATA "/golden/" + model + "/model/tokenizer.json");
    const CompressedTokenMap map = compressed_token_map(tokenizer);
    EXPECT_EQ(std::vector<std::int64_t>(map.class_of.begin(), map.class_of.end()), golden.i) << model;
  }
}

}  // namespace
}  // namespace bathys::tokenizer
