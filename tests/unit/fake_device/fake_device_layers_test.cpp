// SPDX-License-Identifier: Apache-2.0
// Layers on the fake device give the CPU's bits, in forward and backward.
#include <gmock/gmock.h>

#include <functional>

#include "ddp_runtime/torch_compat.h"
#include "tests/unit/fake_device/fake_device_fixture.h"

namespace ddp::fake_device {
namespace {

class FakeDeviceLayersTest : public FakeDeviceTest {};

// Compares a module with its copy on the device: the result, all gradients, all buffers.
template <class Module>
void expect_cpu_bits(const std::function<Module()>& make, const torch::Tensor& input,
                     const std::function<torch::Tensor(Module&, torch::Tensor)>& loss_of) {
  const auto train = [&](const c10::Device& where) {
    torch::manual_seed(3);
    Module module = make();
    if (where.type() == kType) move_to(*module, where);
    auto x = input.clone().to(where);
    if (x.is_floating_point()) x.requires_grad_();
    torch::manual_seed(4);
    const auto loss = loss_of(module, x);
    loss.backward();
    std::vector<torch::Tensor> found = {loss};
    if (x.requires_grad()) found.push_back(x.grad());
    for (const auto& parameter : module->parameters()) found.push_back(parameter.grad());
    for (const auto& buffer : module->buffers()) found.push_back(buffer);
    return found;
  };
  const auto expected = train(torch::kCPU);
  const auto found = train(device());
  ASSERT_EQ(found.size(), expected.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    EXPECT_EQ(found[i].device(), device());
    EXPECT_TRUE(same_bits(found[i], expected[i])) << "tensor " << i;
  }
}

template <class Module>
torch::Tensor square(Module& module, torch::Tensor x) {
  return module->forward(std::move(x)).pow(2).mean();
}

TEST_F(FakeDeviceLayersTest, Convolution) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::Conv2d>(
      [] { return torch::nn::Conv2d(torch::nn::Conv2dOptions(3, 8, 3).stride(2).padding(1)); },
      torch::randn({4, 3, 9, 9}), square<torch::nn::Conv2d>);
}

TEST_F(FakeDeviceLayersTest, BatchNorm) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::BatchNorm2d>([] { return torch::nn::BatchNorm2d(3); },
                                          torch::randn({4, 3, 5, 5}),
                                          square<torch::nn::BatchNorm2d>);
}

TEST_F(FakeDeviceLayersTest, LayerNorm) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::LayerNorm>(
      [] { return torch::nn::LayerNorm(torch::nn::LayerNormOptions({6})); }, torch::randn({4, 6}),
      square<torch::nn::LayerNorm>);
}

TEST_F(FakeDeviceLayersTest, Embedding) {
  expect_cpu_bits<torch::nn::Embedding>([] { return torch::nn::Embedding(10, 4); },
                                        torch::arange(20).remainder(7),
                                        square<torch::nn::Embedding>);
}

TEST_F(FakeDeviceLayersTest, CrossEntropy) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::Linear>(
      [] { return torch::nn::Linear(6, 5); }, torch::randn({8, 6}),
      [](torch::nn::Linear& layer, const torch::Tensor& x) {
        const auto targets = torch::arange(8).remainder(5).to(x.device());
        return torch::nn::functional::cross_entropy(layer->forward(x), targets);
      });
}

TEST_F(FakeDeviceLayersTest, DropoutWithASeed) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::Linear>([] { return torch::nn::Linear(6, 50); }, torch::randn({8, 6}),
                                     [](torch::nn::Linear& layer, const torch::Tensor& x) {
                                       return torch::dropout(layer->forward(x), 0.3, true).sum();
                                     });
}

TEST_F(FakeDeviceLayersTest, GroupNorm) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::GroupNorm>(
      [] { return torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, 4)); },
      torch::randn({3, 4, 5}), square<torch::nn::GroupNorm>);
}

TEST_F(FakeDeviceLayersTest, CausalAttention) {
  torch::manual_seed(1);
  expect_cpu_bits<torch::nn::Linear>(
      [] { return torch::nn::Linear(4, 4); }, torch::randn({2, 3, 5, 4}),
      [](torch::nn::Linear& layer, const torch::Tensor& x) {
        return torch_compat::causal_attention(layer->forward(x), x, x).pow(2).sum();
      });
}

TEST_F(FakeDeviceLayersTest, Autocast) {
  torch::manual_seed(1);
  torch::nn::Linear layer(6, 5);
  move_to(*layer, device());
  const auto x = torch::randn({8, 6}).to(device());
  torch_compat::set_autocast(kType, true, torch::kBFloat16);
  const auto y = layer->forward(x);
  const auto loss = y.log_softmax(1).sum();
  at::autocast::clear_cache();
  torch_compat::set_autocast(kType, false, torch::kBFloat16);
  EXPECT_EQ(y.scalar_type(), torch::kBFloat16);
  EXPECT_EQ(loss.scalar_type(), torch::kFloat32);
  loss.backward();
  EXPECT_EQ(layer->weight.grad().scalar_type(), torch::kFloat32);
}

TEST_F(FakeDeviceLayersTest, FusedAndForeachOptimizers) {
  torch::manual_seed(1);
  const auto start = torch::randn({30});
  const auto gradient = torch::randn({30});
  const auto update = [&](const c10::Device& where) {
    auto weight = start.to(where, false, /*copy=*/true);
    const auto g = gradient.to(where);
    const auto zeros = torch::zeros_like(weight);
    const auto squares = torch::zeros_like(weight);
    const auto step = torch::ones({}, weight.options());
    at::_fused_adamw_({weight}, {g}, {zeros}, {squares}, {}, {step}, 0.1, 0.9, 0.999, 0.01, 1e-8,
                      false, false);
    at::_foreach_mul_({weight}, 0.5);
    return weight;
  };
  const auto expected = update(torch::kCPU);
  const auto found = update(device());
  EXPECT_TRUE(same_bits(found, expected));
}

}  // namespace
}  // namespace ddp::fake_device
