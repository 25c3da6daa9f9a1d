// SPDX-License-Identifier: Apache-2.0
// Makes CUDA usable in a program that is linked with the CPU half of libtorch only, so that one
// program runs on login nodes, on CPUs and on GPUs, and starts quickly where no GPU is wanted.
//
//   ddp::comm::WorldOptions options;
//   options.gpus = true;
//   options.nccl.prepare = ddp::load_cuda;
//   return ddp::comm::run("mine", options, [](ddp::comm::World& world) {
//     const torch::Device device = ddp::cuda_device(*world.device());
//     net->to(device);
//     ...
#pragma once

#include <torch/torch.h>

namespace ddp {

// Loads the CUDA half of this program's libtorch. Call it before anything that asks libtorch for
// CUDA, such as torch::manual_seed(). Throws UsageError if there is none, or if it cannot be
// loaded.
void load_cuda();

// The GPU with this number among those that the process sees. Throws RuntimeError if libtorch
// cannot use it.
torch::Device cuda_device(int number);

}  // namespace ddp
