// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/launch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>

namespace ddp {
namespace {

using testing::ElementsAre;

BucketPlan three_buckets() {
  BucketPlan plan;
  plan.buckets = {{4, 3}, {2}, {1, 0}};
  plan.bucket_of = {2, 2, 1, 0, 0};
  return plan;
}

TEST(LaunchOrder, CompleteBucketWaitsForThoseBeforeIt) {
  LaunchOrder order(three_buckets());
  const auto launched = [&](std::size_t index) {
    const auto [first, last] = order.mark_ready(index);
    return std::pair(first, last);
  };
  EXPECT_EQ(launched(2), std::pair(0UL, 0UL)) << "bucket 1 must wait for bucket 0";
  EXPECT_EQ(launched(3), std::pair(0UL, 0UL));
  EXPECT_THAT(order.missing(), ElementsAre(0, 1, 4));
  EXPECT_EQ(launched(4), std::pair(0UL, 2UL)) << "buckets 0 and 1 must be launched together";
  EXPECT_FALSE(order.all_launched());
  EXPECT_EQ(launched(0), std::pair(2UL, 2UL));
  EXPECT_EQ(launched(1), std::pair(2UL, 3UL));
  EXPECT_TRUE(order.all_launched());
  EXPECT_THAT(order.missing(), ElementsAre());
}

TEST(LaunchOrder, ResetForgetsEverything) {
  LaunchOrder order(three_buckets());
  for (const std::size_t i : {4, 3, 2, 1, 0}) order.mark_ready(i);
  order.reset();
  EXPECT_FALSE(order.all_launched());
  EXPECT_FALSE(order.is_ready(3));
  EXPECT_EQ(order.missing().size(), 5U);
}

// Buckets are sent as 0, 1, 2, ... regardless of the order in which gradients become ready.
TEST(LaunchOrder, AnyReadyOrderLaunchesInIndexOrder) {
  std::mt19937 random(3);
  std::vector<std::size_t> ready{0, 1, 2, 3, 4};
  LaunchOrder order(three_buckets());
  for (int round = 0; round < 200; ++round) {
    std::shuffle(ready.begin(), ready.end(), random);
    order.reset();
    std::size_t next = 0;
    for (const std::size_t index : ready) {
      const auto [first, last] = order.mark_ready(index);
      EXPECT_EQ(first, next);
      next = last;
    }
    EXPECT_EQ(next, 3U);
  }
}

}  // namespace
}  // namespace ddp
