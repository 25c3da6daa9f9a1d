// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/parallel/sharded/plan/unit_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing::Optional;

UnitOrder learned(UnitOrder::Units calls) {
  UnitOrder order(std::move(calls));
  order.begin_forward();
  return order;
}

TEST(UnitOrder, LearnsTheOrderOfCallsOutOfTurn) {
  const UnitOrder order({1, 2, 3, 4});
  EXPECT_THAT(order.learned_from({1, 2, 3, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(order.learned_from({2, 4}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(order.learned_from({}), ElementsAre(1, 2, 3, 4));
  EXPECT_THAT(order.learned_from({2, 1, 4}), ElementsAre(2, 1, 4, 3));
  EXPECT_THAT(order.learned_from({1, 1, 3}), ElementsAre(1, 1, 3, 2, 4));
}

TEST(UnitOrder, GathersTheNextUnitAhead) {
  auto order = learned({1, 2, 1, 4});
  EXPECT_THAT(order.next(), Optional(1U));
  EXPECT_THAT(order.call(1), ElementsAre(1));
  EXPECT_THAT(order.next(), Optional(2U));
  EXPECT_THAT(order.call(2), ElementsAre(2));
  EXPECT_THAT(order.call(1), ElementsAre(1));
  EXPECT_TRUE(order.is_last(4));
  EXPECT_FALSE(order.is_last(1));
  EXPECT_THAT(order.call(4), ElementsAre(4));
  EXPECT_EQ(order.next(), std::nullopt);
  order.begin_backward();
  EXPECT_THAT(order.back_to(4), ElementsAre(4));
  EXPECT_THAT(order.back_to(1), ElementsAre(1));
  EXPECT_THAT(order.previous(), Optional(2U));
}

TEST(UnitOrder, TakesPartInTheGathersOfSkippedUnits) {
  auto order = learned({1, 2, 3, 4, 5});
  EXPECT_THAT(order.call(2), ElementsAre(1, 2));
  EXPECT_THAT(order.call(4), ElementsAre(3, 4));
  EXPECT_THAT(order.skip_rest(), ElementsAre(5));
  EXPECT_THAT(order.skip_rest(), IsEmpty());
  order.begin_backward();
  EXPECT_FALSE(order.was_reached(5));
  EXPECT_THAT(order.back_to(4), ElementsAre(5, 4));
  EXPECT_TRUE(order.was_reached(5));
  EXPECT_FALSE(order.was_reached(3));
  EXPECT_THAT(order.back_to(2), ElementsAre(3, 2));
  EXPECT_THAT(order.skip_rest_of_backward(), ElementsAre(1));
  EXPECT_EQ(order.previous(), std::nullopt);
}

// All ranks call it alike, or the ranks find the difference at the end of forward.
TEST(UnitOrder, GathersACallOutOfTurnByItself) {
  auto order = learned({1, 2, 3});
  order.call(3);
  EXPECT_THAT(order.call(1), ElementsAre(1));
  EXPECT_THAT(order.call(7), ElementsAre(7));
  order.begin_forward();
  EXPECT_THAT(order.next(), Optional(1U));
  EXPECT_THAT(order.calls(), IsEmpty());
}

}  // namespace
}  // namespace ddp
