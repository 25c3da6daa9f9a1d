// SPDX-License-Identifier: Apache-2.0
// The device on which a test trains: CPUs, or the fake device of libtorch if the environment has
// SLURM_DDP_TEST_DEVICE=fake and the program was built with PyTorch 2.x. Thus the same test runs on
// both.
//
// On the fake device, each test has fresh devices, and fails if it has misused them or leaves
// anything behind on them.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <vector>

#include "ddp_runtime/comm/p2p/run_ranks.h"

namespace ddp::test {

#ifdef SLURM_DDP_FAKE_GPU

bool on_device();
// Of this thread: each rank of run_ranks() has its own device.
torch::Device test_device();
// Moves the parameters and buffers to test_device(). Must be called before the first forward.
void move_to_test_device(torch::nn::Module& module);
// comm::run_ranks() on CPUs. On the fake device, the ranks have groups of GPUs, and there can be at
// most kMaxRanks of them; `options` are those of the groups of hosts on which they are built.
void run_ranks(int ranks, const std::function<void(comm::Group&)>& body,
               comm::GroupOptions options = {}, const std::function<int(int rank)>& node_of = {});
inline constexpr int kMaxRanks = 4;
// This test misuses its devices on purpose.
void allow_device_problems();
// For groups that share ranks and wait for each other, as on a real device; called before anything
// is on a device.
void allow_collectives_at_once(int count);

#else

inline bool on_device() {
  return false;
}
inline torch::Device test_device() {
  return torch::kCPU;
}
inline void move_to_test_device(torch::nn::Module&) {}
inline void allow_device_problems() {}
inline void allow_collectives_at_once(int) {}
inline void run_ranks(int ranks, const std::function<void(comm::Group&)>& body,
                      comm::GroupOptions options = {},
                      const std::function<int(int rank)>& node_of = {}) {
  comm::run_ranks(ranks, body, std::move(options), node_of);
}

#endif

// The same for the pointer or holder of a module that was just made.
template <class Module>
Module on_test_device(Module module) {
  move_to_test_device(*module);
  return module;
}

inline torch::Tensor on_test_device(const torch::Tensor& tensor) {
  return tensor.to(test_device());
}

// Copies of the values, for comparisons.
inline std::vector<torch::Tensor> on_cpu(const std::vector<torch::Tensor>& tensors) {
  std::vector<torch::Tensor> copies;
  copies.reserve(tensors.size());
  for (const auto& tensor : tensors) copies.push_back(tensor.detach().to(torch::kCPU).clone());
  return copies;
}

}  // namespace ddp::test
