// SPDX-License-Identifier: Apache-2.0
// The sequence of loss scales, which must be the same on all ranks.
#include "ddp_runtime/amp/grad_scaler.h"

#include <gtest/gtest.h>

#include <limits>
#include <mutex>
#include <set>

#include "ddp_runtime/amp/device_grad_scaler.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/torch_compat.h"
#include "tests/unit/test_device.h"

namespace ddp::amp {
namespace {

// Returns the scale after each step of `finite`, starting from 8 and growing after three finite
// steps.
std::vector<float> scales(const std::vector<bool>& finite) {
  GradScaler scaler({8, 2, 0.5, 3});
  std::vector<float> result;
  for (const bool f : finite) {
    scaler.update(f);
    result.push_back(scaler.scale());
  }
  return result;
}

// Like _amp_update_scale_ in PyTorch: an overflow halves the scale and restarts the count; the
// count also restarts after growing.
TEST(GradScaler, FollowsPyTorchsSequence) {
  const bool o = false;
  const bool g = true;
  EXPECT_EQ(scales({g, g, g, g, g, g, g}), (std::vector<float>{8, 8, 16, 16, 16, 32, 32}));
  EXPECT_EQ(scales({o, o, o}), (std::vector<float>{4, 2, 1}));
  EXPECT_EQ(scales({g, g, o, g, g, g, o}), (std::vector<float>{8, 8, 4, 4, 4, 8, 4}));
}

TEST(GradScaler, StartsAndGrowsAsInPyTorch) {
  GradScaler scaler;
  EXPECT_EQ(scaler.scale(), 65536);
  for (int i = 0; i < 1999; ++i) scaler.update(true);
  EXPECT_EQ(scaler.scale(), 65536);
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), 131072);
  scaler.update(false);
  EXPECT_EQ(scaler.scale(), 65536);
}

TEST(GradScaler, DoesNotGrowToInfinity) {
  GradScaler scaler({std::numeric_limits<float>::max() / 1.5F, 2, 0.5, 1});
  const float before = scaler.scale();
  scaler.update(true);
  EXPECT_EQ(scaler.scale(), before);
}

TEST(GradScaler, ContinuesItsCountAfterARestore) {
  GradScaler scaler({8, 2, 0.5, 3});
  scaler.update(true);
  scaler.update(true);
  GradScaler other({64, 2, 0.5, 3});
  other.restore(scaler.state());
  other.update(true);
  EXPECT_EQ(other.scale(), 16);
}

TEST(UnscaleGradients, DividesAndDetectsNonFiniteValues) {
  const auto with_gradient = [](float value) {
    auto p = test::on_test_device(torch::zeros({2})).requires_grad_();
    p.mutable_grad() = test::on_test_device(torch::tensor({4.0F, value}));
    return p;
  };
  const auto unused = test::on_test_device(torch::zeros({2})).requires_grad_();
  const auto fine = with_gradient(2);
  EXPECT_TRUE(unscale_gradients({unused, fine}, 4));
  EXPECT_EQ(fine.grad()[0].item<float>(), 1);
  EXPECT_EQ(fine.grad()[1].item<float>(), 0.5F);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const float bad : {infinity, -infinity, std::numeric_limits<float>::quiet_NaN()}) {
    EXPECT_FALSE(unscale_gradients({with_gradient(bad), with_gradient(1)}, 4)) << bad;
    EXPECT_FALSE(unscale_gradients({with_gradient(1), with_gradient(bad)}, 1)) << bad;
  }
}

#if SLURM_DDP_TORCH_2_4

torch::Tensor flag(bool set) {
  return test::on_test_device(torch::tensor(set ? 1.0F : 0.0F));
}

TEST(DeviceGradScaler, HasTheScalesOfTheHosts) {
  GradScaler host({8, 2, 0.5, 3});
  host.update(true);  // a state to continue from
  DeviceGradScaler device(host, test::test_device());
  for (const bool finite : {true, true, false, true, true, true, true, false, false, true}) {
    host.update(finite);
    device.update(flag(!finite));
    EXPECT_EQ(device.scale().item<float>(), host.scale());
    EXPECT_EQ(device.updates_since_change().item<int>(), host.state().updates_since_change);
  }
  GradScaler largest({std::numeric_limits<float>::max() / 1.5F, 2, 0.5, 1});
  DeviceGradScaler stays(largest, test::test_device());
  stays.update(flag(false));
  EXPECT_EQ(stays.scale().item<float>(), largest.scale());
}

// bfloat16 takes another way, which rounds the factor, too.
TEST(DeviceGradScaler, DividesLikeTheHostsAndFindsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto with_gradient = [](float value, torch::ScalarType type) {
    auto p = test::on_test_device(torch::zeros({2}, type)).requires_grad_();
    p.mutable_grad() = test::on_test_device(torch::tensor({4.0F, value}).to(type));
    return p;
  };
  const GradScaler host({12, 2, 0.5, 3});  // not a power of two: the bits of the factor matter
  const DeviceGradScaler device(host, test::test_device());
  for (const auto type : {torch::kFloat32, torch::kBFloat16}) {
    for (const float value : {7.0F, infinity, -infinity, nan}) {
      const auto unused = test::on_test_device(torch::zeros({2}, type)).requires_grad_();
      const auto empty = test::on_test_device(torch::zeros({0}, type)).requires_grad_();
      empty.mutable_grad() = test::on_test_device(torch::zeros({0}, type));
      const std::vector<torch::Tensor> ours{unused, empty, with_gradient(value, type),
                                            with_gradient(1, torch::kFloat32)};
      const std::vector<torch::Tensor> theirs{with_gradient(value, type)};
      auto found = flag(false);
      device.unscale(ours, found);
      EXPECT_EQ(found.item<float>() == 0, host.unscale(theirs)) << type << " " << value;
      EXPECT_TRUE(torch::allclose(ours[2].grad().cpu().to(torch::kFloat32),
                                  theirs[0].grad().cpu().to(torch::kFloat32),
                                  type == torch::kFloat32 ? 0 : 0.01, 0, true))
          << type << " " << value;
      EXPECT_EQ(ours[3].grad()[0].item<float>(), 4 * static_cast<float>(1.0 / 12));
    }
  }
  auto found = flag(true);
  device.unscale({with_gradient(1, torch::kFloat32)}, found);
  EXPECT_EQ(found.item<float>(), 1) << "must keep what was found before";
}

// The gradients of each type have kernels of their own, which share the flag.
TEST(DeviceGradScaler, FindsWhatIsNotFiniteInAnyOfSeveralTypes) {
  const std::vector<torch::ScalarType> types{torch::kBFloat16, torch::kFloat32, torch::kFloat64,
                                             torch::kBFloat16, torch::kFloat32, torch::kHalf};
  const DeviceGradScaler scaler(GradScaler({8, 2, 0.5, 3}), test::test_device());
  for (std::size_t bad = 0; bad <= types.size(); ++bad) {
    std::vector<torch::Tensor> parameters;
    for (std::size_t i = 0; i < types.size(); ++i) {
      const auto options = torch::TensorOptions(types[i]).device(test::test_device());
      parameters.push_back(torch::zeros({3}, options).requires_grad_());
      auto gradient = torch::full({3}, 4, options);
      if (i == bad) gradient[1].fill_(std::numeric_limits<double>::infinity());
      parameters.back().mutable_grad() = gradient;
    }
    auto found = flag(false);
    scaler.unscale(parameters, found);
    EXPECT_EQ(found.item<float>(), bad < types.size() ? 1 : 0) << bad;
    for (const auto& parameter : parameters) {
      EXPECT_EQ(parameter.grad()[2].item<float>(), 0.5F) << bad << " " << parameter.scalar_type();
    }
  }
}

#endif

// One rank's gradient overflows in step 1 of 3: all ranks detect it, halve the scale and continue.
TEST(GradScaler, OverflowOnOneRankBacksOffOnAll) {
  std::mutex mutex;
  std::set<std::pair<int, float>> scales_of_ranks;  // by step
  test::run_ranks(3, [&](comm::Group& group) {
    auto layer = test::on_test_device(torch::nn::Linear(1, 1));
    DistributedDataParallel replica(*layer, group);
    GradScaler scaler({1024, 2, 0.5, 2});
    for (int i = 0; i < 4; ++i) {
      // The derivative of the square root is infinite at 0, but its value is not.
      const bool overflow = i == 1 && group.rank() == 1;
      auto loss = layer(test::on_test_device(torch::ones({1, 1}))).sum();
      if (overflow) loss = (loss - loss.detach()).abs().sqrt();
      auto step = replica.begin_step();
      step.backward(scaler.scale_loss(loss));
      const bool finite = scaler.unscale(layer->parameters());
      EXPECT_EQ(finite, i != 1) << "rank " << group.rank();
      if (finite) {
        EXPECT_FLOAT_EQ(layer->bias.grad().item<float>(), 1);
      }
      scaler.update(finite);
      const std::lock_guard lock(mutex);
      scales_of_ranks.insert({i, scaler.scale()});
    }
  });
  const std::set<std::pair<int, float>> one_sequence{{0, 1024}, {1, 512}, {2, 512}, {3, 1024}};
  EXPECT_EQ(scales_of_ranks, one_sequence);
}

}  // namespace
}  // namespace ddp::amp
