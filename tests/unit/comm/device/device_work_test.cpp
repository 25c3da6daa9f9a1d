// SPDX-License-Identifier: Apache-2.0
// What a wait reports if the GPU fails: the collective that did not end, and nothing for one that
// did.
#include "ddp_runtime/comm/device/device_work.h"

#include <gtest/gtest.h>

#include <chrono>
#include <memory>
#include <optional>
#include <thread>
#include <utility>

#include "base/errors.h"
#include "tests/unit/comm/device/gpu_kernels.h"
#include "tests/unit/comm/fake_gpu/fake_gpu.h"
#include "tests/unit/error_of.h"

namespace ddp::comm::test {
namespace {

class DeviceWorkTest : public GpuTest {
 protected:
  void SetUp() override {
    GpuTest::SetUp();
    device_calls().set_device(0);
    stream_.emplace();
    events_ = std::make_shared<EventPool>(device_calls(), 0);
    DeviceWork::Settings settings;
    settings.stream = stream_->get();
    work_ = std::make_unique<DeviceWork>(events_, failures_, std::move(settings));
    work_->launched(events_->record(stream_->get()));
  }
  void TearDown() override {
    work_.reset();
    events_.reset();
    stream_.reset();
    GpuTest::TearDown();
  }

  FailureState failures_;
  std::optional<TestStream> stream_;
  std::shared_ptr<EventPool> events_;
  std::unique_ptr<DeviceWork> work_;
};

TEST_F(DeviceWorkTest, EndThatTheWatchdogSawIsNoErrorAfterTheGpuFailed) {
  work_->finished();
  fake::break_device(0, 700);
  EXPECT_NO_THROW(work_->wait_host());
  EXPECT_NO_THROW(work_->wait());
  EXPECT_TRUE(work_->done());
}

TEST_F(DeviceWorkTest, ErrorOfTheGpuIsReportedByTheWatchdogsVerdict) {
  fake::break_device(0, 700);
  std::thread watchdog([this] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    failures_.fail({0, "all_reduce #3 did not end"});
    work_->failed(std::make_exception_ptr(RuntimeError("all_reduce #3 did not end")));
  });
  EXPECT_EQ(error_of([&] { work_->wait_host(); }), "all_reduce #3 did not end");
  EXPECT_EQ(error_of([&] { work_->wait(); }), "all_reduce #3 did not end");
  watchdog.join();
}

}  // namespace
}  // namespace ddp::comm::test
