// SPDX-License-Identifier: Apache-2.0
// The random number generators that a run must continue: for dropout, augmentation and the like.
#pragma once

#include <torch/torch.h>

#include <cstdint>

namespace ddp::train {

// The state of the default generator of a device, in host memory: [bytes], uint8.
torch::Tensor generator_state(torch::Device device);
void set_generator_state(torch::Device device, const torch::Tensor& state);
void seed_generator(torch::Device device, std::uint64_t seed);

}  // namespace ddp::train
