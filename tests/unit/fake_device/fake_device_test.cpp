// SPDX-License-Identifier: Apache-2.0
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <gmock/gmock.h>

#include <atomic>
#include <thread>

#include "ddp_runtime/torch_compat.h"
#include "tests/unit/error_of.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;

// Streams of the device that are not its default stream.
c10::Stream stream_from_pool(bool high = false) {
  return c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(), high);
}

torch::Tensor ones_on_device(int64_t count) {
  return torch::ones({count}, torch::dtype(torch::kFloat32).device(device()));
}

// ---- values

struct Layers : torch::nn::Module {
  Layers() {
    a = register_module("a", torch::nn::Linear(8, 16));
    b = register_module("b", torch::nn::Linear(16, 4));
  }
  torch::Tensor loss(const torch::Tensor& x) {
    return b->forward(torch::relu(a->forward(x))).pow(2).mean();
  }
  torch::nn::Linear a{nullptr};
  torch::nn::Linear b{nullptr};
};

TEST_F(FakeDeviceTest, ForwardAndBackwardEqualTheCpu) {
  torch::manual_seed(1);
  Layers host;
  torch::manual_seed(1);
  Layers there;
  move_to(there, device());
  const auto x = torch::randn({32, 8});
  const auto expected = host.loss(x);
  const auto loss = there.loss(x.to(device()));
  EXPECT_EQ(loss.device(), device());
  expected.backward();
  loss.backward();
  EXPECT_TRUE(same_bits(loss, expected));
  for (std::size_t i = 0; i < host.parameters().size(); ++i) {
    EXPECT_TRUE(same_bits(there.parameters()[i].grad(), host.parameters()[i].grad())) << i;
  }
}

TEST_F(FakeDeviceTest, ViewsShareMemory) {
  const auto values = torch::arange(12, torch::dtype(torch::kFloat32).device(device()));
  const auto rows = values.view({3, 4});
  rows.t().select(0, 1).mul_(10);
  rows.unfold(1, 2, 2).select(0, 2).add_(100);
  EXPECT_THAT(fake::problems(), testing::IsEmpty());
  const auto host = values.cpu();
  const std::vector<float> found(host.data_ptr<float>(), host.data_ptr<float>() + host.numel());
  EXPECT_THAT(found, ElementsAre(0, 10, 2, 3, 4, 50, 6, 7, 108, 190, 110, 111));
  const auto moved = torch::empty({0}, values.options());
  moved.set_(values.storage(), 2, {2, 2}, {4, 1});
  EXPECT_EQ(moved.sum().item<float>(), 2 + 3 + 6 + 7);
}

TEST_F(FakeDeviceTest, ResultsAreResized) {
  const auto a = ones_on_device(5);
  auto sum = torch::empty({0}, a.options());
  torch::add_out(sum, a, a);
  EXPECT_EQ(sum.numel(), 5);
  EXPECT_EQ(sum.sum().item<float>(), 10);
  sum.resize_({2, 3});
  EXPECT_EQ(sum.sizes(), torch::IntArrayRef({2, 3}));
}

TEST_F(FakeDeviceTest, TensorOfForeignMemoryKnowsItsDevice) {
  const auto a = ones_on_device(5);
  const auto same =
      torch::from_blob(a.data_ptr(), {5}, torch::dtype(torch::kFloat32).device(kType));
  EXPECT_EQ(same.device(), device());
  same.mul_(3);
  EXPECT_EQ(a.sum().item<float>(), 15);
}

TEST_F(FakeDeviceTest, RandomNumbersAreThoseOfTheCpu) {
  torch::manual_seed(5);
  const auto expected = torch::randn({100});
  torch::manual_seed(5);
  EXPECT_TRUE(same_bits(torch::randn({100}, device()), expected));
  EXPECT_FALSE(same_bits(torch::randn({100}, device()), expected));
}

TEST_F(FakeDeviceTest, CopiesBetweenDevices) {
  const auto there = torch::full({4}, 7.0F, device(1));
  const auto here = there.to(device(0));
  EXPECT_EQ(here.device(), device(0));
  EXPECT_EQ(here.sum().item<float>(), 28);
  EXPECT_THAT(error_of([&] { here.add(there); }), HasSubstr("device"));
}

// ---- streams

TEST_F(FakeDeviceTest, HooksRunOnADeviceThreadWithTheStreamOfTheForward) {
  const auto stream = stream_from_pool(true);
  const c10::StreamGuard guard(stream);
  Layers layers;
  move_to(layers, device());
  const auto here = std::this_thread::get_id();
  std::vector<torch_compat::NodePointer> nodes;
  std::atomic<int> calls{0};
  for (const auto& parameter : layers.parameters()) {
    nodes.push_back(torch::autograd::impl::grad_accumulator(parameter));
    nodes.back()->add_post_hook(torch_compat::after_accumulation([&] {
      ++calls;
      EXPECT_NE(std::this_thread::get_id(), here);
      EXPECT_EQ(current_stream(), stream);
    }));
  }
  layers.loss(torch::ones({3, 8}).to(device())).backward();
  EXPECT_EQ(calls, 4);
}

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

TEST_F(FakeDeviceTest, ReadOnAnotherStreamAfterAnEventIsFine) {
  const auto values = ones_on_device(10);
  values.mul_(2);
  const auto before = current_stream();
  const auto side = stream_from_pool();
  torch::Tensor sum;
  {
    const c10::StreamGuard guard(side);
    c10::Event written(kType);
    written.record(before);
    written.block(side);
    sum = values.add(1).sum();
    EXPECT_EQ(host_waits(), 0);
    EXPECT_EQ(sum.item<float>(), 30);  // the host waits, so values may be freed
  }
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

// ---- waits of the host

TEST_F(FakeDeviceTest, ItemIsOneHostWait) {
  const auto sum = ones_on_device(10).sum();
  EXPECT_EQ(host_waits(), 0);
  EXPECT_EQ(sum.item<float>(), 10);
  EXPECT_THAT(host_wait_names(), ElementsAre("aten::_local_scalar_dense"));
  forget_host_waits();
  EXPECT_EQ(host_waits(), 0);
}

TEST_F(FakeDeviceTest, TrainingStepMakesNoHostWait) {
  Layers layers;
  move_to(layers, device());
  const auto x = torch::ones({3, 8}).pin_memory();
  torch::optim::SGD optimizer(layers.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  forget_host_waits();
  for (int step = 0; step < 3; ++step) {
    optimizer.zero_grad();
    layers.loss(x.to(device(), /*non_blocking=*/true)).backward();
    optimizer.step();
  }
  EXPECT_EQ(host_wait_names(), std::vector<std::string>());
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

// ---- errors

TEST_F(FakeDeviceTest, OperatorsOfABrokenDeviceThrow) {
  const auto values = ones_on_device(10);
  const auto elsewhere = torch::ones({2}, device(1));
  fake::break_device(0, 700);
  EXPECT_THAT(error_of([&] { values.add(1); }), HasSubstr("illegal memory access"));
  EXPECT_THAT(error_of([&] { values.cpu(); }), HasSubstr("illegal memory access"));
  EXPECT_THAT(error_of([&] { ones_on_device(1); }), HasSubstr("illegal memory access"));
  EXPECT_EQ(elsewhere.sum().item<float>(), 2);
}

TEST_F(FakeDeviceTest, OutOfMemory) {
  EXPECT_THROW(ones_on_device(int64_t{1} << 30), c10::OutOfMemoryError);
}

}  // namespace
}  // namespace ddp::fake_device
