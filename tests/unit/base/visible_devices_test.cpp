// SPDX-License-Identifier: Apache-2.0
#include "base/visible_devices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(VisibleDevices, AreThoseBeforeTheFirstInvalidEntry) {
  EXPECT_THAT(visible_devices("0,1,2"), ElementsAre("0", "1", "2"));
  EXPECT_THAT(visible_devices("3, 1"), ElementsAre("3", "1"));
  EXPECT_THAT(visible_devices("0,1,-1,2"), ElementsAre("0", "1"));
  EXPECT_THAT(visible_devices("0,,1"), ElementsAre("0"));
  EXPECT_THAT(visible_devices("0,1,"), ElementsAre("0", "1"));
  EXPECT_THAT(visible_devices("GPU-8f3a,MIG-0b1c,none,GPU-9"), ElementsAre("GPU-8f3a", "MIG-0b1c"));
  EXPECT_THAT(visible_devices("0.0,0.1,1"), ElementsAre("0.0", "0.1", "1")) << "Intel's tiles";
  for (const auto* none : {"", "-1", "NoDevFiles", "none", ",0", "-1,0"}) {
    EXPECT_THAT(visible_devices(none), IsEmpty()) << none;
  }
}

TEST(VisibleDevices, AreNoneIfOneIsListedTwice) {
  EXPECT_THAT(visible_devices("0,0"), IsEmpty());
  EXPECT_THAT(visible_devices("0,1,2,01"), IsEmpty());
  EXPECT_THAT(visible_devices("0,00"), IsEmpty());
  EXPECT_THAT(visible_devices("GPU-8f3a,GPU-0b1c,GPU-8f3a"), IsEmpty());
  EXPECT_THAT(visible_devices("0,1,-1,0"), ElementsAre("0", "1")) << "the second 0 is not read";
}

}  // namespace
}  // namespace ddp
