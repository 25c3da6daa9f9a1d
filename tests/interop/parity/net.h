// SPDX-License-Identifier: Apache-2.0
// The model and the data of the parity test, computed from formulas. theirs.py has the same.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace parity {

inline constexpr std::int64_t kInputs = 20;
inline constexpr std::int64_t kClasses = 5;
inline constexpr std::int64_t kBatch = 8;

inline torch::Tensor wave(std::int64_t count, double frequency, double phase,
                          torch::ScalarType type) {
  const auto index = torch::arange(count, torch::kFloat64);
  return torch::sin(index * frequency + phase).to(type);
}

struct Net : torch::nn::Module {
  // Every rank starts with different values, and rank 0's must win.
  Net(int rank, torch::ScalarType type) {
    first = register_module("first", torch::nn::Linear(kInputs, 32));
    second = register_module("second", torch::nn::Linear(32, 24));
    third = register_module("third", torch::nn::Linear(24, kClasses));
    to(type);
    const torch::NoGradGuard no_grad;
    double phase = rank;
    for (auto& p : parameters()) {
      p.copy_(0.3 * wave(p.numel(), 0.7, phase, type).view(p.sizes()));
      phase += 1.3;
    }
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return third(torch::tanh(second(torch::tanh(first(x)))));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

inline torch::Tensor loss_of(Net& net, std::int64_t step, int rank, int micro_batch,
                             torch::ScalarType type) {
  const double phase = 0.11 * static_cast<double>(step) + 0.53 * rank + 0.29 * micro_batch;
  const auto inputs = wave(kBatch * kInputs, 0.37, phase, type).view({kBatch, kInputs});
  const auto targets = torch::remainder(3 * torch::arange(kBatch) + rank * micro_batch, kClasses);
  return torch::nn::functional::cross_entropy(net.forward(inputs), targets);
}

}  // namespace parity
