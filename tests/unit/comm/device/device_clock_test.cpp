// SPDX-License-Identifier: Apache-2.0
// The times of a fake GPU whose clock passes only on request.
#include "ddp_runtime/comm/device/device_clock.h"

#include <gtest/gtest.h>

#include "base/errors.h"
#include "tests/unit/comm/device/gpu_kernels.h"
#include "tests/unit/comm/fake_gpu/fake_gpu.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

using namespace std::chrono_literals;

class DeviceClockTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    fake::reset({.clock_stands = true});
    device_calls().set_device(0);
    stream_.emplace();
    events_ = std::make_shared<EventPool>(device_calls(), 0, EventPool::Timing::yes);
  }
  void TearDown() override {
    events_.reset();
    stream_.reset();
    GpuTest::TearDown();
  }

  // An event that is reached `milliseconds` after the one before.
  EventPool::Event event_after(double milliseconds) {
    fake::pass(milliseconds);
    auto event = events_->record(stream_->get());
    EXPECT_TRUE(events_->reached(event));
    return event;
  }

  static constexpr Clock::time_point kStart{1000s};
  std::optional<TestStream> stream_;
  std::shared_ptr<EventPool> events_;
};

TEST_F(DeviceClockTest, FirstTimeIsThatOfTheLook) {
  DeviceClock clock(events_);
  EXPECT_EQ(clock.look(event_after(5), {}, kStart), kStart);
}

TEST_F(DeviceClockTest, LaterTimesAreThoseOfTheDevice) {
  DeviceClock clock(events_);
  clock.look(event_after(5), {}, kStart);
  EXPECT_EQ(clock.look(event_after(3), {}, kStart + 20ms), kStart + 3ms);
  const auto earlier = event_after(2);
  EXPECT_EQ(clock.look(event_after(4), {}, kStart + 20ms), kStart + 9ms);
  EXPECT_EQ(clock.time_of(earlier), kStart + 5ms);
}

// The first look came 30 ms after the event, the second one 1 ms.
TEST_F(DeviceClockTest, WrongFirstGuessIsCorrected) {
  DeviceClock clock(events_);
  clock.look(event_after(0), {}, kStart);
  EXPECT_EQ(clock.look(event_after(50), {}, kStart + 21ms), kStart + 21ms);
  EXPECT_EQ(clock.look(event_after(10), {}, kStart + 40ms), kStart + 31ms);
}

// The device's clock is slower.
TEST_F(DeviceClockTest, TimeIsNotBeforeTheLastLookThatDidNotFindIt) {
  DeviceClock clock(events_);
  clock.look(event_after(0), {}, kStart);
  EXPECT_EQ(clock.look(event_after(10), kStart + 11ms, kStart + 13ms), kStart + 11ms);
  EXPECT_EQ(clock.look(event_after(10), kStart + 20ms, kStart + 23ms), kStart + 21ms);
}

TEST_F(DeviceClockTest, EventsWithoutTimesAreRefused) {
  const auto pool = std::make_shared<EventPool>(device_calls(), 0);
  const auto event = pool->record(stream_->get());
  EXPECT_TRUE(pool->reached(event));
  EXPECT_NE(error_of([&] { pool->elapsed(event, event); }), "");
  device_calls().take_last_error();
}

}  // namespace
}  // namespace ddp::comm::test
