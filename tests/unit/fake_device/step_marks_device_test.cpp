// SPDX-License-Identifier: Apache-2.0
// The times of steps on a fake GPU whose clock passes only on request.
#include "ddp_runtime/parallel/device/step_marks.h"

#include <gmock/gmock.h>

#include <thread>

#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using namespace std::chrono_literals;
using profile::Phase;
using testing::IsEmpty;
using testing::SizeIs;

double milliseconds(profile::Interval time) {
  return std::chrono::duration<double, std::milli>(time.end - time.begin).count();
}

class StepMarksTest : public FakeDeviceTest {
 protected:
  void SetUp() override {
    reset({.clock_stands = true});
    marks_.emplace(device());
  }
  void TearDown() override {
    marks_.reset();
    FakeDeviceTest::TearDown();
  }

  void work(double milliseconds, Phase phase) {
    fake::pass(milliseconds);
    marks_->end(phase);
  }
  void step(bool after_pause = false) {
    marks_->begin_step(after_pause);
    work(3, Phase::data);
    work(10, Phase::backward);
    work(2, Phase::exposed_comm);
    fake::pass(1);
    marks_->end_step();
  }

  std::optional<StepMarks> marks_;
};

TEST_F(StepMarksTest, PhasesLastAsLongAsOnTheDevice) {
  step();
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(1));
  EXPECT_NEAR(milliseconds(steps[0].time), 16, 0.01);
  ASSERT_THAT(steps[0].parts, SizeIs(3));
  EXPECT_EQ(steps[0].parts[0].phase, Phase::data);
  EXPECT_NEAR(milliseconds(steps[0].parts[0].time), 3, 0.01);
  EXPECT_EQ(steps[0].parts[1].phase, Phase::backward);
  EXPECT_NEAR(milliseconds(steps[0].parts[1].time), 10, 0.01);
  EXPECT_EQ(steps[0].parts[2].time.begin, steps[0].parts[1].time.end);
  EXPECT_NEAR(milliseconds({steps[0].parts[2].time.end, steps[0].time.end}), 1, 0.01);
  EXPECT_THAT(marks_->take_completed(), IsEmpty()) << "each step is taken once";
}

TEST_F(StepMarksTest, StepsComeWhenTheDeviceHasReachedThem) {
  fake::hold(0);
  step();
  step();
  EXPECT_THAT(marks_->take_completed(), IsEmpty());
  EXPECT_EQ(host_waits(), 0);
  fake::release(0);
  EXPECT_THAT(marks_->take_completed(), SizeIs(2));
}

TEST_F(StepMarksTest, StepBeginsAtTheEndOfThePreviousOneUnlessThereWasAPause) {
  step();
  fake::pass(100);
  step();
  fake::pass(1000);
  step(true);
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(3));
  EXPECT_NEAR(milliseconds(steps[1].time), 116, 0.01);
  EXPECT_NEAR(milliseconds(steps[1].parts[0].time), 103, 0.01) << "the loader was late";
  EXPECT_NEAR(milliseconds(steps[2].time), 16, 0.01);
}

// The device's clock stands, and the host's does not.
TEST_F(StepMarksTest, NoStepIsBeforeItsMarks) {
  marks_->begin_step(true);
  marks_->end_step();
  std::this_thread::sleep_for(20ms);
  const auto before = profile::Clock::now();
  marks_->begin_step(true);
  marks_->end(Phase::forward);
  marks_->end_step();
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_GE(steps[1].time.end, before);
  EXPECT_LE(steps[1].time.end, profile::Clock::now());
  EXPECT_EQ(milliseconds(steps[1].time), 0);

  marks_->begin_step(true);
  std::this_thread::sleep_for(20ms);
  const auto middle = profile::Clock::now();
  marks_->end(Phase::forward);
  marks_->end_step();
  const auto moved = marks_->take_completed();
  ASSERT_THAT(moved, SizeIs(1));
  EXPECT_GE(moved[0].time.begin, middle) << "with the mark in its middle";
}

TEST_F(StepMarksTest, PartsMoveWithTheirStep) {
  marks_->begin_step(true);
  marks_->end_step();
  std::this_thread::sleep_for(20ms);
  const auto begun = profile::Clock::now();
  marks_->begin_step(true);
  work(3, Phase::forward);
  work(10, Phase::backward);
  marks_->end_step();
  std::this_thread::sleep_for(20ms);
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(2));
  ASSERT_THAT(steps[1].parts, SizeIs(2));
  EXPECT_GE(steps[1].time.begin, begun);
  EXPECT_EQ(steps[1].parts[0].time.begin, steps[1].time.begin);
  EXPECT_NEAR(milliseconds(steps[1].parts[0].time), 3, 0.01);
  EXPECT_EQ(steps[1].parts[1].time.begin, steps[1].parts[0].time.end);
  EXPECT_NEAR(milliseconds(steps[1].parts[1].time), 10, 0.01);
  EXPECT_EQ(steps[1].parts[1].time.end, steps[1].time.end);
}

// The program has recorded all marks long before the device reaches them.
TEST_F(StepMarksTest, StepsOfADeviceThatIsBehindFollowEachOther) {
  marks_->begin_step(true);
  fake::hold(0);
  marks_->end_step();
  marks_->begin_step(false);
  marks_->end_step();
  fake::pass(200);
  std::this_thread::sleep_for(300ms);
  fake::release(0);
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_NEAR(milliseconds(steps[0].time), 200, 0.1);
  EXPECT_EQ(steps[1].time.begin, steps[0].time.end);
}

// A step that is moved moves those after it.
TEST_F(StepMarksTest, StepsFollowOneThatIsMoved) {
  marks_->begin_step(true);
  std::this_thread::sleep_for(100ms);
  marks_->end(Phase::forward);
  fake::pass(300);
  marks_->end_step();
  step();
  std::this_thread::sleep_for(400ms);
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(2));
  EXPECT_EQ(steps[1].time.begin, steps[0].time.end);
}

// The clock of the device passes an hour, and the host's does not.
TEST_F(StepMarksTest, NoStepEndsInTheFuture) {
  step();
  fake::pass(3600e3);
  step();
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(2));
  for (const auto& step : steps) EXPECT_LE(step.time.end, profile::Clock::now());
  EXPECT_NEAR(milliseconds(steps[1].parts[1].time), 10, 0.5) << "of float milliseconds";
}

TEST_F(StepMarksTest, CollectiveHasTheTimesOfItsWork) {
  struct Ended final : comm::Work::Completion {
    void wait() override {}
    void wait_on(comm::DeviceStream) override {}
    void wait_host() override {}
    bool done() override { return ended; }
    comm::WorkTimes times() override {
      return {comm::Clock::time_point(1s), comm::Clock::time_point(2s),
              comm::Clock::time_point(5s)};
    }
    bool ended = false;
  };
  const auto collective = std::make_shared<Ended>();
  const auto other = std::make_shared<Ended>();
  marks_->begin_step(true);
  marks_->add("bucket 0", 64, comm::Work::completed_by(collective));
  marks_->add("bucket 1", 32, comm::Work::completed_by(other));
  marks_->end_step();
  other->ended = true;
  EXPECT_THAT(marks_->take_completed(), IsEmpty()) << "before the times of the work are known";
  collective->ended = true;
  const auto steps = marks_->take_completed();
  ASSERT_THAT(steps, SizeIs(1));
  ASSERT_THAT(steps[0].communication, SizeIs(2));
  EXPECT_EQ(steps[0].communication[0].label, "bucket 0");
  EXPECT_EQ(steps[0].communication[0].bytes, 64U);
  EXPECT_EQ(milliseconds(steps[0].communication[0].time), 3000);
}

TEST_F(StepMarksTest, DeviceMayBeBrokenFromTheStart) {
  fake::break_device(0, 700);
  step();
  step();
  EXPECT_THAT(marks_->take_completed(), IsEmpty());
}

TEST_F(StepMarksTest, BrokenDeviceEndsTheMeasurementOnly) {
  step();
  fake::break_device(0, 700);
  step();
  step();
  EXPECT_THAT(marks_->take_completed(), IsEmpty());
}

}  // namespace
}  // namespace ddp::fake_device
