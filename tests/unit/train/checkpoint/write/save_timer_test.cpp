// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/write/save_timer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace ddp::train {
namespace {

using std::chrono::seconds;
using testing::HasSubstr;

const SaveTimer::TimePoint kStart{std::chrono::hours(1000)};

TEST(YoungInterval, IsTheRootOfTwiceTheStallTimesTheMtbf) {
  struct Case {
    double stall;
    double mtbf_hours;
    double seconds;  // from the table of sqrt(2 x stall x MTBF) for failures of large jobs
  };
  for (const auto& [stall, hours, expected] :
       {Case{0.15, 49.5, 231}, Case{0.3, 49.5, 327}, Case{1, 49.5, 597}, Case{10, 49.5, 1888},
        Case{60, 49.5, 4624}, Case{1, 5.07, 191}, Case{10, 5.07, 604}, Case{60, 0.51, 469}}) {
    EXPECT_NEAR(young_seconds({stall, 1}, hours * 3600), expected, 0.6) << stall << " " << hours;
  }
}

TEST(YoungInterval, HasLimits) {
  EXPECT_EQ(young_seconds({0, 0}, 1e6), kMinYoungSeconds);
  EXPECT_EQ(young_seconds({1, 1}, 1), kMinYoungSeconds);
  EXPECT_EQ(young_seconds({1, 100}, 3600), 200) << "saves must not wait for each other";
  EXPECT_EQ(young_seconds({600, 600}, 1e9), kMaxYoungSeconds);
  EXPECT_EQ(young_seconds({600, 10000}, 1e9), 20000) << "a slow disk raises the upper limit";
}

TEST(SaveTimer, IsDueAfterTheTimeSinceTheLastRestart) {
  SaveTimer timer({.every_seconds = 600});
  timer.restart(kStart);
  EXPECT_FALSE(timer.due(kStart));
  EXPECT_FALSE(timer.due(kStart + seconds(599)));
  EXPECT_TRUE(timer.due(kStart + seconds(600)));
  EXPECT_TRUE(timer.due(kStart + seconds(700)));
  timer.restart(kStart + seconds(700));
  EXPECT_FALSE(timer.due(kStart + seconds(1299)));
  EXPECT_TRUE(timer.due(kStart + seconds(1300)));
  EXPECT_EQ(timer.measured({1, 1}), "") << "the user has chosen the time";
}

TEST(SaveTimer, WithoutATimeIsNeverDue) {
  SaveTimer timer({});
  timer.restart(kStart);
  EXPECT_FALSE(timer.due(kStart + std::chrono::hours(24 * 3650)));
}

TEST(SaveTimer, SavesOnceAndThenAtYoungsInterval) {
  SaveTimer timer({.young = true, .mtbf_seconds = 49.5 * 3600});
  timer.restart(kStart);
  EXPECT_FALSE(timer.due(kStart + seconds(59)));
  EXPECT_TRUE(timer.due(kStart + seconds(60))) << "the cost of a save is not known before";
  EXPECT_EQ(
      timer.measured({1, 5}),
      "saves every 9.95 min of training from now on (--checkpoint-every auto): a save stops "
      "training for 1 s and is durable after 5 s, and the job is expected to fail every 2.06 d "
      "(--mtbf)");
  timer.restart(kStart);
  EXPECT_FALSE(timer.due(kStart + seconds(596)));
  EXPECT_TRUE(timer.due(kStart + seconds(598)));
}

TEST(SaveTimer, AnnouncesOnlyLargeChanges) {
  SaveTimer timer({.young = true, .mtbf_seconds = 49.5 * 3600});
  EXPECT_THAT(timer.measured({1, 1}), HasSubstr("saves every 9.95 min"));
  EXPECT_EQ(timer.measured({1, 1}), "");
  EXPECT_EQ(timer.measured({3, 1}), "") << "a stall of 2 s on average: 1.41 times the interval";
  EXPECT_THAT(timer.measured({4, 1}), HasSubstr("saves every 17.2 min")) << "3 s";
  EXPECT_EQ(timer.measured({3, 1}), "") << "compared with the announced interval";
  for (int save = 0; save < 2; ++save) timer.measured({0, 1});
  EXPECT_THAT(timer.measured({0, 1}) + timer.measured({0, 1}), HasSubstr("saves every "))
      << "a shorter interval is announced, too";
}

}  // namespace
}  // namespace ddp::train
