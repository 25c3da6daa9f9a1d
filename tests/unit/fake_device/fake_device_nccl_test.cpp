// SPDX-License-Identifier: Apache-2.0
// Collectives of NCCL on tensors of the fake device.
#include <gmock/gmock.h>

#include "ddp_runtime/torch_compat.h"
#include "tests/unit/comm/device/gpu_ranks.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

using testing::AllOf;
using testing::Contains;
using testing::Each;
using testing::HasSubstr;

class FakeDeviceNcclTest : public FakeDeviceTest {};

comm::Buffer buffer_of_tensor(const torch::Tensor& tensor) {
  return {static_cast<std::byte*>(tensor.data_ptr()), static_cast<std::size_t>(tensor.numel()),
          comm::ElementType::f32, comm::Memory::device,
          handle_of(current_stream(tensor.device().index()))};
}

torch::Tensor values_of_rank(int rank) {
  return torch::full({100}, static_cast<float>(rank + 1), device(rank));
}

TEST_F(FakeDeviceNcclTest, AllReduceThenRead) {
  const auto errors = comm::test::run_gpu_ranks(2, [](const comm::test::GpuRank& r) {
    const auto values = values_of_rank(r.rank);
    r.group.all_reduce(buffer_of_tensor(values), comm::ReduceOp::sum, "values", {}).wait();
    const auto doubled = values * 2;
    EXPECT_EQ(doubled.sum().item<float>(), 600);
  });
  EXPECT_THAT(errors, Each(""));
}

TEST_F(FakeDeviceNcclTest, AllReduceOnAStreamFromThePool) {
  const auto errors = comm::test::run_gpu_ranks(2, [](const comm::test::GpuRank& r) {
    const c10::StreamGuard guard(
        c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(r.rank)));
    const auto values = values_of_rank(r.rank);
    r.group.all_reduce(buffer_of_tensor(values), comm::ReduceOp::sum, "values", {}).wait();
    EXPECT_EQ(values.mul(2).sum().item<float>(), 600);
  });
  EXPECT_THAT(errors, Each(""));
}

// One step of data-parallel training: the hooks run on the threads of the devices.
void train_one_step(const comm::test::GpuRank& r, torch::nn::Linear& layer) {
  std::vector<torch_compat::NodePointer> nodes;
  std::vector<comm::Work> works;
  for (const auto& parameter : layer->parameters()) {
    nodes.push_back(torch::autograd::impl::grad_accumulator(parameter));
    nodes.back()->add_post_hook(torch_compat::after_accumulation([&r, &works, parameter] {
      works.push_back(r.group.all_reduce(buffer_of_tensor(parameter.grad()), comm::ReduceOp::sum,
                                         "gradient", {}));
    }));
  }
  const auto x = torch::full({4, 6}, static_cast<float>(r.rank + 1), device(r.rank));
  layer->forward(x).pow(2).sum().backward();
  for (const auto& work : works) work.wait();
  const torch::NoGradGuard no_grad;
  for (const auto& parameter : layer->parameters()) parameter.sub_(parameter.grad() * 0.1);
}

TEST_F(FakeDeviceNcclTest, HooksReduceGradients) {
  const auto make = [] {
    torch::manual_seed(1);
    return torch::nn::Linear(6, 3);
  };
  std::vector<torch::nn::Linear> layers = {make(), make()};
  for (int rank = 0; rank < 2; ++rank) {
    move_to(*layers[static_cast<std::size_t>(rank)], device(rank));
  }
  forget_host_waits();
  const auto errors = comm::test::run_gpu_ranks(2, [&](const comm::test::GpuRank& r) {
    train_one_step(r, layers[static_cast<std::size_t>(r.rank)]);
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_EQ(host_wait_names(), std::vector<std::string>());

  auto expected = make();
  for (const float value : {1.0F, 2.0F}) {
    expected->forward(torch::full({4, 6}, value)).pow(2).sum().backward();
  }
  for (const auto& layer : layers) {
    EXPECT_TRUE(same_bits(layer->weight, expected->weight - expected->weight.grad() * 0.1));
    EXPECT_TRUE(same_bits(layer->bias, expected->bias - expected->bias.grad() * 0.1));
  }
}

TEST_F(FakeDeviceNcclTest, ReadWithoutAWaitIsReported) {
  const auto errors = comm::test::run_gpu_ranks(2, [](const comm::test::GpuRank& r) {
    const auto values = values_of_rank(r.rank);
    const auto work =
        r.group.all_reduce(buffer_of_tensor(values), comm::ReduceOp::sum, "values", {});
    // Returns when the launch is on its stream. Only another stream waits for it.
    work.wait_on(
        handle_of(c10::impl::VirtualGuardImpl(kType).getStreamFromGlobalPool(device(r.rank))));
    const auto doubled = values * 2;
    work.wait_host();
  });
  EXPECT_THAT(errors, Each(""));
  EXPECT_THAT(expected_problems(), Contains(AllOf(HasSubstr("aten::mul"),
                                                  HasSubstr("without waiting for ncclAllReduce"))));
}

}  // namespace
}  // namespace ddp::fake_device
