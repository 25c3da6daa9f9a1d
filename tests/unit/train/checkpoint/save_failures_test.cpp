// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/checkpoint/save_failures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "tests/unit/error_of.h"

namespace ddp::train {
namespace {

using testing::HasSubstr;

TEST(SaveFailures, ThirdInARowThrows) {
  const RunLog log;
  SaveFailures failures(log);
  failures.record(10, "no space");
  failures.record(20, "no space");
  EXPECT_THAT(error_of([&] { failures.record(30, "a disk error"); }),
              HasSubstr("3 checkpoints in a row could not be saved: a disk error"));
}

TEST(SaveFailures, SuccessStartsTheCountAgain) {
  const RunLog log;
  SaveFailures failures(log);
  for (int i = 0; i < 5; ++i) {
    failures.record(10, "no space");
    failures.record(20, "no space");
    failures.record(30, "");
  }
  EXPECT_EQ(failures.problem(), "no space");
}

TEST(SaveFailures, LastSaveIsRetriedByTheCaller) {
  const RunLog log;
  SaveFailures failures(log);
  failures.begin_last_save();
  for (int i = 0; i < 5; ++i) failures.record(10, "no space");
  failures.end_last_save();
  EXPECT_EQ(failures.problem(), "no space");
  failures.record(20, "no space");
  failures.record(30, "no space");
  EXPECT_THAT(error_of([&] { failures.record(40, "no space"); }), HasSubstr("3 checkpoints"));
}

}  // namespace
}  // namespace ddp::train
