// SPDX-License-Identifier: Apache-2.0
#include "parallel/device_binding.hpp"
#include "parallel/rank_grid.hpp"
#include "parallel/start_support.hpp"

#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace bathys::parallel {
namespace {

using ::testing::HasSubstr;

TEST(Layout, IsReadInAnyOrderWithDefaults) {
  EXPECT_EQ(parse_layout("replicas=2,groups=3,tensor=4"), (Layout{2, 3, 4}));
  EXPECT_EQ(parse_layout("tensor=4"), (Layout{1, 1, 4}));
  EXPECT_EQ(parse_layout("tensor=2,replicas=8"), (Layout{8, 1, 2}));
  EXPECT_EQ(to_string(Layout{2, 3, 4}), "replicas=2,groups=3,tensor=4");
}

TEST(Layout, WhatIsWrongIsNamed) {
  EXPECT_THAT(usage_error([] { (void)parse_layout(""); }), HasSubstr("no value"));
  EXPECT_THAT(usage_error([] { (void)parse_layout("tensor"); }), HasSubstr("no value"));
  EXPECT_THAT(usage_error([] { (void)parse_layout("tensor=2,"); }), HasSubstr("no value"));
  EXPECT_THAT(usage_error([] { (void)parse_layout("tensors=2"); }), HasSubstr("did you mean tensor"));
  EXPECT_THAT(usage_error([] { (void)parse_layout("tensor=2,tensor=2"); }), HasSubstr("twice"));
  for (const char* const text :
       {"tensor=0", "tensor=-1", "tensor=x", "tensor=", "tensor=1.5", "tensor=99999999999", "tensor= 2"}) {
    EXPECT_THAT(usage_error([&] { (void)parse_layout(text); }), HasSubstr("expected a number from 1 on")) << text;
  }
}

TEST(Layout, WithoutOneAllRanksAreOneTensorGroup) {
  EXPECT_EQ(choose_layout("", 4, 8, 16), (Layout{1, 1, 4}));
  EXPECT_EQ(choose_layout("tensor=4,groups=1", 4, 8, 16), (Layout{1, 1, 4}));
}

TEST(Layout, MustMakeTheWorldAndDivideTheOutputGroups) {
  EXPECT_THAT(usage_error([] { (void)choose_layout("tensor=2", 4, 8, 16); }), HasSubstr("which is 4"));
  EXPECT_THAT(
      usage_error([] { (void)choose_layout("replicas=2147483647,groups=2147483647,tensor=2147483647", 4, 8, 16); }),
      HasSubstr("which is 4"));
  EXPECT_THAT(usage_error([] { (void)choose_layout("", 3, 8, 16); }), HasSubstr("one of 1, 2, 4, 8;"));
  EXPECT_THAT(usage_error([] { (void)choose_layout("", 16, 8, 16); }), HasSubstr("one of 1, 2, 4, 8;"));
}

TEST(Layout, CutsOfEveryKindAreTaken) {
  EXPECT_EQ(choose_layout("replicas=2,tensor=2", 4, 8, 16), (Layout{2, 1, 2}));
  EXPECT_EQ(choose_layout("groups=2,tensor=2", 4, 8, 16), (Layout{1, 2, 2}));
  EXPECT_EQ(choose_layout("replicas=3", 3, 8, 16), (Layout{3, 1, 1}));
  EXPECT_EQ(choose_layout("groups=2,tensor=8", 16, 8, 16), (Layout{1, 2, 8}));
}

TEST(Layout, AReplicaWithMoreRanksThanExpertsIsRefused) {
  EXPECT_THAT(usage_error([] { (void)choose_layout("groups=4,tensor=8", 32, 8, 16); }), HasSubstr("16 routed experts"));
  EXPECT_EQ(choose_layout("replicas=2,groups=2,tensor=8", 32, 8, 16), (Layout{2, 2, 8}));
}

TEST(DeviceBinding, TheOnlyVisibleDeviceElseTheLocalRanks) {
  EXPECT_EQ(choose_device(3, 4, 1), 0);
  EXPECT_EQ(choose_device(3, 4, 8), 3);
  EXPECT_THAT(usage_error([] { (void)choose_device(0, 4, 2); }), HasSubstr("4 ranks on a node with 2 visible GPUs"));
  EXPECT_THAT(usage_error([] { (void)choose_device(0, 1, 0); }), HasSubstr("no GPU"));
}

TEST(DeviceBinding, TwoRanksOnOneGpuAreNamed) {
  EXPECT_NO_THROW(require_distinct_devices({{"a", "u"}, {"b", "u"}, {"a", "v"}}));
  EXPECT_THAT(usage_error([] {
                require_distinct_devices({{"a", "u"}, {"a", "v"}, {"a", "u"}});
              }),
              HasSubstr("ranks 0 and 2 on host a"));
}

}  // namespace
}  // namespace bathys::parallel
