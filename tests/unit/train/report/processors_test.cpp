// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/report/processors.h"

#include <gtest/gtest.h>

namespace ddp::train {
namespace {

TEST(Processors, ListsUseTasksetNotation) {
  EXPECT_EQ(processor_list({}), "");
  EXPECT_EQ(processor_list({3}), "3");
  EXPECT_EQ(processor_list({0, 1, 2, 5, 7, 8}), "0-2,5,7-8");
}

TEST(Processors, ThisProcessHasAtLeastOneCpu) {
  EXPECT_FALSE(usable_processors().empty());
  EXPECT_GT(process_age_seconds(), 0);
  EXPECT_GE(involuntary_switches(), 0);
}

}  // namespace
}  // namespace ddp::train
