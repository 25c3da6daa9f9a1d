// SPDX-License-Identifier: Apache-2.0
// The fake device itself: it must notice accesses without a wait, and waits of the host. What it
// computes is compared with CPUs in the tests that run on it.
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Streams of the device that are not its default stream.
c10::Stream stream_from_pool(int index = 0) {
  return c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(index));
}

torch::Tensor ones_on_device(int64_t count) {
  return torch::ones({count}, torch::dtype(torch::kFloat32).device(device()));
}

// ---- streams

TEST_F(FakeDeviceTest, ReadOnAnotherStreamWithoutAWaitIsReported) {
  const auto values = ones_on_device(10);
  values.mul_(2);
  torch::Tensor sum;
  {
    const c10::StreamGuard guard(stream_from_pool());
    sum = values.add(1);
  }
  EXPECT_THAT(expected_problems(),
              Contains(AllOf(HasSubstr("aten::add"), HasSubstr("without waiting for aten::mul,"))));
}

TEST_F(FakeDeviceTest, MemoryThatAnotherStreamUsesWhenItIsFreedIsReported) {
  const auto use = [&](bool records) {
    const auto before = current_stream();
    const auto side = stream_from_pool();
    c10::Event written(kType);
    auto values = ones_on_device(10);
    written.record(before);
    written.block(side);
    torch::Tensor sum;
    {
      const c10::StreamGuard guard(side);
      sum = values.sum();
    }
    if (records) values.record_stream(side);
    values.reset();
  };
  use(true);
  EXPECT_THAT(fake::problems(), testing::IsEmpty());
  use(false);
  EXPECT_THAT(expected_problems(), ElementsAre(AllOf(HasSubstr("the next owner of freed memory"),
                                                     HasSubstr("aten::sum"))));
}

TEST_F(FakeDeviceTest, ReadOfACollectiveWithoutAWaitIsReported) {
  comm::test::run_on_gpus(2, [](const comm::test::GpuRank& r) {
    const auto values = torch::ones({100}, device(r.rank));
    const comm::Buffer buffer{static_cast<std::byte*>(values.data_ptr()), 100,
                              comm::ElementType::f32, comm::Memory::device,
                              handle_of(current_stream(r.rank))};
    const auto work = r.group.all_reduce(buffer, comm::ReduceOp::sum, "values", {});
    // Returns when the launch is on its stream. Only another stream waits for it.
    work.wait_on(handle_of(stream_from_pool(r.rank)));
    const auto doubled = values * 2;
    work.wait_host();
  });
  EXPECT_THAT(expected_problems(), Contains(AllOf(HasSubstr("aten::mul"),
                                                  HasSubstr("without waiting for ncclAllReduce"))));
}

// ---- waits of the host

TEST_F(FakeDeviceTest, ItemIsOneHostWait) {
  const auto sum = ones_on_device(10).sum();
  EXPECT_EQ(host_waits(), 0);
  EXPECT_EQ(sum.item<float>(), 10);
  EXPECT_THAT(host_wait_names(), ElementsAre("aten::_local_scalar_dense"));
  forget_host_waits();
  EXPECT_EQ(host_waits(), 0);
}

TEST_F(FakeDeviceTest, CopiesWaitUnlessTheyAreNonBlockingAndPinned) {
  const auto values = ones_on_device(10);
  const auto pageable = torch::zeros({10});
  const auto pinned = pageable.pin_memory();
  EXPECT_TRUE(pinned.is_pinned());
  EXPECT_FALSE(pageable.is_pinned());
  forget_host_waits();
  pinned.copy_(values, /*non_blocking=*/true);
  values.copy_(pinned, /*non_blocking=*/true);
  EXPECT_EQ(host_waits(), 0);
  pinned.copy_(values);
  values.copy_(pinned);
  pageable.copy_(values, /*non_blocking=*/true);
  values.copy_(pageable, /*non_blocking=*/true);
  EXPECT_EQ(host_waits(), 4);
}

TEST_F(FakeDeviceTest, ShapesThatDependOnValuesAreHostWaits) {
  const auto values = ones_on_device(10);
  const auto first = torch::tensor({0}, torch::kInt64).to(device());
  const auto mask = values > 0;
  forget_host_waits();
  EXPECT_EQ(values.index({first}).numel(), 1);
  EXPECT_EQ(host_waits(), 0);
  EXPECT_EQ(values.nonzero().numel(), 10);
  EXPECT_EQ(values.index({mask}).numel(), 10);
  EXPECT_TRUE(values.equal(values));
  EXPECT_EQ(host_waits(), 3);
}

TEST_F(FakeDeviceTest, SynchronizationIsAHostWait) {
  const auto values = ones_on_device(10);
  c10::Event event(kType);
  event.record(current_stream());
  current_stream().synchronize();
  event.synchronize();
  EXPECT_THAT(host_wait_names(), ElementsAre("synchronize a stream", "synchronize an event"));
}

}  // namespace
}  // namespace ddp::fake_device
