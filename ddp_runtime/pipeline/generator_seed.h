// SPDX-License-Identifier: Apache-2.0
// Random numbers that do not depend on how a model is cut and on the order of its operations: each
// forward of a stage on a micro-batch has a seed of its own.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

namespace ddp::pipeline {

// `micro_batch` counts over all replicas: those of replica r follow those of replica r - 1.
std::uint64_t forward_seed(std::uint64_t seed, std::int64_t step, int stage,
                           std::int64_t micro_batch) noexcept;

// While an instance exists, the generators of the CPU and of `device` continue from `seed`. They
// belong to the process, so other threads must not use them meanwhile.
class SeededGenerators {
 public:
  SeededGenerators(std::uint64_t seed, torch::Device device);
  SeededGenerators(const SeededGenerators&) = delete;
  SeededGenerators& operator=(const SeededGenerators&) = delete;
  ~SeededGenerators();

 private:
  std::vector<torch::Device> devices_;
  std::vector<torch::Tensor> before_;
};

}  // namespace ddp::pipeline
