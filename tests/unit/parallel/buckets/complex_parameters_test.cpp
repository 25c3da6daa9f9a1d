// SPDX-License-Identifier: Apache-2.0
// Parameters that are complex numbers.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/torch.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "ddp_runtime/parallel/hooks/compression.h"
#include "tests/unit/parallel/branches.h"

namespace ddp::test {
namespace {

constexpr int kComplexRanks = 3;

// A real layer, then rotations by complex numbers: one matrix of them is not contiguous.
struct RotationsImpl : torch::nn::Module {
  explicit RotationsImpl(torch::ScalarType type)
      : turn(register_parameter("turn", torch::randn({4, 3}, type).t())),
        shift(register_parameter("shift", torch::randn({4}, type))) {
    register_module("layer", layer);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    const auto z = torch::complex(layer(x), torch::ones_like(x.narrow(1, 0, 3)));
    return torch::abs(torch::mm(z.to(turn.scalar_type()), turn) + shift);
  }
  torch::Tensor turn;
  torch::Tensor shift;
  torch::nn::Linear layer{4, 3};
};
TORCH_MODULE(Rotations);

Rotations make_rotations(torch::ScalarType type) {
  return seeded([&] { return Rotations(type); });
}

torch::Tensor loss_of_rotations(Rotations& net, int rank) {
  return loss_of(net->forward(input_of(rank)));
}

std::map<std::string, torch::Tensor> gradients_of_one_process(torch::ScalarType type) {
  auto net = make_rotations(type);
  for (int rank = 0; rank < kComplexRanks; ++rank) {
    const auto loss = loss_of_rotations(net, rank);
    loss.backward(torch::full_like(loss, 1.0 / kComplexRanks));
  }
  return gradients_of(*net);
}

DataParallelOptions with_hook(CommHook hook) {
  DataParallelOptions options;
  options.check_parameters_every = 1;
  options.hook = std::move(hook);
  return options;
}

// The averaged gradients of three ranks, which start with models that differ.
std::map<std::string, torch::Tensor> averaged_gradients(torch::ScalarType type,
                                                        const DataParallelOptions& options) {
  std::map<std::string, torch::Tensor> gradients;
  run_ranks(kComplexRanks, [&](comm::Group& group) {
    auto net = make_rotations(type);
    {
      const torch::NoGradGuard no_grad;
      net->turn.mul_(group.rank() + 1);
    }
    DistributedDataParallel replica(*net, group, options);
    for (int i = 0; i < 2; ++i) {
      auto step = replica.begin_step();
      step.backward(loss_of_rotations(net, group.rank()));
    }
    if (group.rank() == 1) gradients = gradients_of(*net);
  });
  return gradients;
}

class ComplexParameters : public testing::TestWithParam<torch::ScalarType> {
 protected:
  void SetUp() override {
    if (test::on_device())
      GTEST_SKIP() << "the simulated device cannot view complex numbers as real ones";
  }
};

TEST_P(ComplexParameters, HaveTheGradientsOfOneProcess) {
  const auto expected = gradients_of_one_process(GetParam());
  EXPECT_TRUE(expected.at("turn").is_complex());
  for (const auto& limits : {BucketLimits{1, 1}, BucketLimits{}}) {
    auto options = with_hook({});
    options.buckets = limits;
    expect_close(averaged_gradients(GetParam(), options), expected);
    options.allow_unused = true;
    expect_close(averaged_gradients(GetParam(), options), expected);
  }
}

TEST_P(ComplexParameters, AreSeenByHooksAsPairsOfRealNumbers) {
  const auto expected = gradients_of_one_process(GetParam());
  std::mutex mutex;
  std::vector<std::vector<std::int64_t>> shapes;
  const CommHook look = [&](GradientBucket& bucket) -> HookTask {
    {
      const std::lock_guard lock(mutex);
      EXPECT_EQ(bucket.tensor().dim(), 1);
      EXPECT_FALSE(bucket.tensor().is_complex());
      for (const auto& member : bucket.members()) {
        if (bucket.group().rank() != 0 || bucket.pass() > 0) continue;
        shapes.push_back(member.gradient.sizes().vec());
      }
    }
    co_await bucket.all_reduce(bucket.tensor());
  };
  expect_close(averaged_gradients(GetParam(), with_hook(look)), expected);
  EXPECT_THAT(shapes,
              testing::IsSupersetOf(std::vector<std::vector<std::int64_t>>{{3, 4, 2}, {4, 2}}));
}

TEST_P(ComplexParameters, CanBeCompressed) {
  const auto expected = gradients_of_one_process(GetParam());
  const auto rounded = averaged_gradients(GetParam(), with_hook(hooks::bf16_summed_in_fp32));
  for (const auto& [name, gradient] : expected) {
    EXPECT_TRUE(torch::allclose(rounded.at(name), gradient, 0.02, 0.02)) << name;
    EXPECT_FALSE(torch::equal(rounded.at(name), gradient)) << name;
  }
}

TEST_P(ComplexParameters, TrainLikeThoseOfOneProcess) {
  auto alone = make_rotations(GetParam());
  torch::optim::SGD alone_optimizer(alone->parameters(), 0.1);
  for (int i = 0; i < 3; ++i) {
    alone_optimizer.zero_grad();
    for (int rank = 0; rank < kComplexRanks; ++rank) {
      const auto loss = loss_of_rotations(alone, rank);
      loss.backward(torch::full_like(loss, 1.0 / kComplexRanks));
    }
    alone_optimizer.step();
  }
  run_ranks(kComplexRanks, [&](comm::Group& group) {
    auto net = make_rotations(GetParam());
    DistributedDataParallel replica(*net, group, with_hook({}));
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    for (int i = 0; i < 3; ++i) {
      auto step = replica.begin_step();
      step.backward_and_apply(loss_of_rotations(net, group.rank()), optimizer);
    }
    replica.require_same_parameters();
    expect_close(values_of(*net), values_of(*alone));
  });
}

INSTANTIATE_TEST_SUITE_P(Types, ComplexParameters,
                         testing::Values(torch::kComplexFloat, torch::kComplexDouble),
                         [](const auto& param_info) {
                           return std::string(c10::toString(param_info.param));
                         });

}  // namespace
}  // namespace ddp::test
