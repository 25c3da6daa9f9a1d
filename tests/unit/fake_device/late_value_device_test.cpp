// SPDX-License-Identifier: Apache-2.0
// Values that a device computes and the host reads later.
#include "ddp_runtime/parallel/device/late_value.h"

#include <gmock/gmock.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::ElementsAre;

class LateValues : public FakeDeviceTest {
 protected:
  // Calls `read` while the device stands still, which continues when the host begins to wait, or
  // when `read` has returned without a wait.
  template <class Read>
  static auto read_from_a_held_device(const Read& read) {
    std::atomic<bool> done{false};
    std::thread releasing([&] {
      while (host_waits() == 0 && !done) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      fake::release(0);
    });
    const auto value = read();
    done = true;
    releasing.join();
    return value;
  }
};

TEST_F(LateValues, AreCopiedWithoutAWaitAndReadAfterOne) {
  const auto scalar = torch::full({1}, 2.5, torch::TensorOptions(device()));
  forget_host_waits();
  fake::hold(0);
  LateValue late(scalar);
  EXPECT_EQ(host_waits(), 0) << "a copy to memory that is not pinned waits";
  EXPECT_FALSE(late.ready());
  EXPECT_EQ(read_from_a_held_device([&] { return late.value(); }), 2.5);
  EXPECT_THAT(host_wait_names(), ElementsAre("synchronize an event"));
  EXPECT_TRUE(late.ready());
  EXPECT_EQ(late.value(), 2.5) << "a second time";
}

TEST_F(LateValues, TensorWaitsForItsCopy) {
  const auto values = torch::arange(6, torch::TensorOptions(device())).view({2, 3});
  const auto expected = torch::arange(6).view({2, 3});
  forget_host_waits();
  fake::hold(0);
  const LateTensor tensor(values);
  EXPECT_FALSE(tensor.ready());
  EXPECT_TRUE(read_from_a_held_device([&] { return torch::equal(tensor.value(), expected); }));
}

TEST_F(LateValues, AreReadWithoutAWaitOnceTheyAreThere) {
  const LateTensor tensor(torch::full({2}, 7, torch::TensorOptions(device())));
  forget_host_waits();
  EXPECT_TRUE(tensor.ready());
  EXPECT_EQ(tensor.value().sum().item<float>(), 14);
  EXPECT_EQ(host_waits(), 0);
}

}  // namespace
}  // namespace ddp::fake_device
