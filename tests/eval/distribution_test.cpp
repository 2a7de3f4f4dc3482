// SPDX-License-Identifier: Apache-2.0
#include "eval/distribution.hpp"

#include "eval/request_counts.hpp"
#include "eval/support.hpp"

#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace bathys::eval {
namespace {

TEST(Distribution, IsNullWithoutValues) {
  const Json json = Distribution().to_json();
  EXPECT_EQ(json["n"], 0);
  for (const char* name : {"mean", "min", "p50", "p90", "p95", "p99", "max"}) EXPECT_TRUE(json.at(name).is_null());
}

TEST(Distribution, HasPercentilesByNearestRank) {
  Distribution values;
  for (int i = 200; i > 0; --i) values.add(i);
  const Json json = values.to_json();
  EXPECT_EQ(json["n"], 200);
  EXPECT_EQ(json["mean"], 100.5);
  EXPECT_EQ(json["min"], 1);
  EXPECT_EQ(json["p50"], 100);
  EXPECT_EQ(json["p90"], 180);
  EXPECT_EQ(json["p95"], 190);
  EXPECT_EQ(json["p99"], 198);
  EXPECT_EQ(json["max"], 200);
  Distribution one;
  one.add(7);
  for (const char* name : {"mean", "min", "p50", "p99", "max"}) EXPECT_EQ(one.to_json()[name], 7);
}

TEST(RequestCounts, CountsALineOnceWhateverItsPrompts) {
  RequestCounts counts;
  const std::string line = R"({"custom_id":"a","url":"/v1/completions","body":{"prompt":["a","b"],"temperature":0.5}})";
  for (const Request& request : test::read(line + "\n").requests) counts.add(request);
  EXPECT_EQ(counts.to_json()["lines"], 1);
  EXPECT_EQ(counts.to_json()["temperatures"], (Json{{"0.5", 1}}));
}

TEST(RequestCounts, BoundsTheValuesItLists) {
  RequestCounts counts;
  for (int i = 0; i < 60; ++i) {
    const std::string body = fmt::format(R"({{"context":"a","temperature":{}}})", 1 + i);
    for (const Request& request : test::read(test::line("generate_until", body)).requests) counts.add(request);
  }
  const Json json = counts.to_json()["temperatures"];
  EXPECT_EQ(json.size(), 51U);
  EXPECT_EQ(json["other"], 10);
}

}  // namespace
}  // namespace bathys::eval
