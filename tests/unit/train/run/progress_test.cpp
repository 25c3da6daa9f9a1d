// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/run/progress.h"

#include <gtest/gtest.h>

#include <cmath>

namespace ddp::train {
namespace {

TEST(Progress, DurationsReadLikeAClock) {
  EXPECT_EQ(duration_text(0), "0:00");
  EXPECT_EQ(duration_text(7.4), "0:07");
  EXPECT_EQ(duration_text(754), "12:34");
  EXPECT_EQ(duration_text(3723), "1:02:03");
  EXPECT_EQ(duration_text(-5), "0:00");
}

TEST(Progress, LineShowsThePositionOfTheRun) {
  EXPECT_EQ(progress_line({2, 20, 120, 500, 0.12345, 0.1, 4567.4}, 12),
            "epoch 3/20  step 120/500  24%  loss 0.1235  lr 0.1  4567 samples/s  0:12 left");
}

TEST(Progress, LinesLeaveOutWhatNoStepHasToldYet) {
  EXPECT_EQ(progress_line({2, 20, 120, 500, 0.12345, 0.1, 0}, std::nullopt),
            "epoch 3/20  step 120/500  24%  loss 0.1235  lr 0.1");
  EXPECT_EQ(progress_line({0, 1, 1, 2, std::copysign(std::nan(""), -1.0), 0.1, 0}, std::nullopt),
            "epoch 1/1  step 1/2  50%  loss nan  lr 0.1")
      << "without the sign that x86 gives it";
  EXPECT_EQ(share_done_text({2, 20, 120, 500, 0, 0, 0}, std::nullopt), "24%");
  EXPECT_EQ(rate_text({0, 1, 1, 2, 0, 0, 0.25}), "  0.25 samples/s");
  EXPECT_EQ(rate_text({0, 1, 1, 2, 0, 0, 9.96}), "  10 samples/s");
}

TEST(Progress, LineOfAnEpochShowsTheShareOfTheRun) {
  EXPECT_EQ(share_done_text({2, 20, 120, 500, 0, 0, 0}, 12), "24%  0:12 left");
  EXPECT_EQ(share_done_text({19, 20, 500, 500, 0, 0, 0}, 0), "100%");
}

}  // namespace
}  // namespace ddp::train
