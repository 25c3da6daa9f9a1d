// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/buckets/bucket_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using testing::ElementsAre;
using Buckets = std::vector<std::vector<std::size_t>>;

std::vector<GradientSize> sizes(std::initializer_list<std::size_t> bytes) {
  std::vector<GradientSize> result;
  for (const std::size_t b : bytes) result.push_back({b, 0});
  return result;
}

struct Case {
  const char* name;
  std::vector<GradientSize> gradients;
  BucketLimits limits;
  Buckets expected;  // for the reverse order
};

class PlanBuckets : public testing::TestWithParam<Case> {};

TEST_P(PlanBuckets, FillsFromTheLastParameterToTheFirst) {
  const Case& c = GetParam();
  const auto plan = plan_buckets(c.gradients, reverse_order(c.gradients.size()), c.limits);
  EXPECT_EQ(plan.buckets, c.expected);
  for (std::size_t b = 0; b < plan.buckets.size(); ++b) {
    for (const std::size_t p : plan.buckets[b]) EXPECT_EQ(plan.bucket_of[p], b);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, PlanBuckets,
    testing::Values(Case{"Empty", {}, {10, 100}, {}},
                    Case{"AllInTheFirst", sizes({1, 2, 3}), {10, 100}, {{2, 1, 0}}},
                    Case{"AFullBucketIsClosed", sizes({4, 4, 4, 4}), {4, 8}, {{3}, {2, 1}, {0}}},
                    Case{"ALargeGradientIsNotSplit", sizes({1, 500, 1}), {10, 100}, {{2, 1}, {0}}},
                    Case{
                        "KeysDoNotMix", {{4, 0}, {4, 1}, {4, 0}, {4, 1}}, {8, 8}, {{3, 1}, {2, 0}}},
                    Case{"OpenBucketsAreClosedByKey", {{1, 7}, {1, 3}}, {10, 10}, {{1}, {0}}},
                    Case{"EmptyGradientsTravelToo", sizes({0, 4, 0}), {4, 4}, {{2, 1}, {0}}}),
    [](const auto& shape) { return shape.param.name; });

TEST(PlanBucketsOrder, FollowsAnyReadyOrder) {
  const auto gradients = sizes({4, 4, 4});
  const std::vector<std::size_t> order{1, 0, 2};
  EXPECT_EQ(plan_buckets(gradients, order, {4, 8}).buckets, (Buckets{{1}, {0, 2}}));
}

TEST(BucketLimitsOn, GpusTakeLargerBucketsUnlessASizeIsGiven) {
  constexpr std::size_t kMiB = 1 << 20;
  EXPECT_EQ(limits_on(false, {}).bytes, 4 * kMiB);
  EXPECT_EQ(limits_on(true, {}).bytes, 25 * kMiB);
  EXPECT_EQ(limits_on(true, {}).first_bytes, kMiB);
  EXPECT_EQ(limits_on(true, {64, 200}).bytes, 200U);
  EXPECT_EQ(limits_on(false, {64, 200}).first_bytes, 64U);
  // Without a size, a plan is that for CPUs.
  const auto gradients = sizes({3 * kMiB, 3 * kMiB, kMiB, kMiB});
  EXPECT_EQ(plan_buckets(gradients, reverse_order(4), {}).buckets, (Buckets{{3}, {2, 1}, {0}}));
}

}  // namespace
}  // namespace ddp
