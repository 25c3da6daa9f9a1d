// SPDX-License-Identifier: Apache-2.0
// One rank of a training run with ddp::DistributedDataParallel, on a model and data computed
// from formulas. Writes all parameters after every step. theirs.py does the same in Python.
//
// Usage: parity_ours MICRO_BATCHES STEPS DIRECTORY
#include <fmt/format.h>
#include <torch/torch.h>

#include <cstdlib>
#include <fstream>
#include <string>

#include "base/errors.h"
#include "ddp_runtime/comm/world.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"

namespace {

constexpr std::int64_t kInputs = 20;
constexpr std::int64_t kClasses = 5;
constexpr std::int64_t kBatch = 8;

torch::Tensor wave(std::int64_t count, double frequency, double phase) {
  const auto index = torch::arange(count, torch::kFloat64);
  return torch::sin(index * frequency + phase).to(torch::kFloat32);
}

struct Net : torch::nn::Module {
  Net() {
    first = register_module("first", torch::nn::Linear(kInputs, 32));
    second = register_module("second", torch::nn::Linear(32, 24));
    third = register_module("third", torch::nn::Linear(24, kClasses));
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return third(torch::tanh(second(torch::tanh(first(x)))));
  }
  torch::nn::Linear first{nullptr}, second{nullptr}, third{nullptr};
};

// Every rank starts with different values, and rank 0's must win.
void initialize(Net& net, int rank) {
  const torch::NoGradGuard no_grad;
  double phase = rank;
  for (auto& p : net.parameters()) {
    p.copy_(0.3 * wave(p.numel(), 0.7, phase).view(p.sizes()));
    phase += 1.3;
  }
}

torch::Tensor loss_of(Net& net, std::int64_t step, int rank, int micro_batch) {
  const double phase = 0.11 * static_cast<double>(step) + 0.53 * rank + 0.29 * micro_batch;
  const auto inputs = wave(kBatch * kInputs, 0.37, phase).view({kBatch, kInputs});
  const auto targets = torch::remainder(3 * torch::arange(kBatch) + rank * micro_batch, kClasses);
  return torch::nn::functional::cross_entropy(net.forward(inputs), targets);
}

void write_parameters(Net& net, std::ofstream& file) {
  for (const auto& p : net.parameters()) {
    const auto values = p.detach().contiguous();
    file.write(static_cast<const char*>(values.data_ptr()),
               static_cast<std::streamsize>(values.nbytes()));
  }
}

void train(ddp::comm::World& world, int micro_batches, std::int64_t steps,
           const std::string& directory) {
  Net net;
  initialize(net, world.rank());
  // Small enough that the model has several buckets.
  ddp::DistributedDataParallel replica(net, world.group(), {.buckets = {256, 2048}});
  torch::optim::SGD optimizer(net.parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  std::ofstream file(fmt::format("{}/ours-{}.f32", directory, world.rank()), std::ios::binary);
  for (std::int64_t s = 0; s < steps; ++s) {
    auto step = replica.begin_step(micro_batches);
    for (int m = 0; m < micro_batches; ++m) step.backward(loss_of(net, s, world.rank(), m));
    step.apply(optimizer);
    write_parameters(net, file);
  }
  file.close();
  if (!file) throw ddp::RuntimeError("cannot write the parameters to " + directory);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  return ddp::comm::run("parity_ours", {}, [&](ddp::comm::World& world) {
    train(world, std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  });
}
