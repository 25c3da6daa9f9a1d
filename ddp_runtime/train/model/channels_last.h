// SPDX-License-Identifier: Apache-2.0
// Images and the weights of convolutions with the channels of a pixel beside each other in memory.
// Tensor cores and oneDNN convolve in this order; in the order of the dimensions, libtorch converts
// around every convolution. Values, names and checkpoints are the same.
#pragma once

#include <torch/torch.h>

#include <string>

namespace ddp::train {

// The same values in channels-last order if they have four dimensions, [N, C, H, W]; otherwise
// `values` itself.
torch::Tensor in_channels_last(const torch::Tensor& values);

// Moves the weights of the convolutions to channels-last memory. Call before anything holds their
// memory, such as a replica or an optimizer's state. Throws UsageError if the module has no weight
// with four dimensions; `model` is its name in the message.
void store_channels_last(torch::nn::Module& module, const std::string& model);

}  // namespace ddp::train
