// SPDX-License-Identifier: Apache-2.0
// Common parts of the convolutional models.
#pragma once

#include "ddp_runtime/models/model.h"

namespace ddp::models {

// No bias, because batch normalization follows; initialized for the ReLU after that: He et al.,
// "Delving Deep into Rectifiers" (2015), preserving the variance in backward.
torch::nn::Conv2d he_convolution(std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t kernel, std::int64_t stride = 1);

// Throws UsageError unless a sample is [channels, height, width] with sides of at least `smallest`.
void require_images(const ModelOptions& options, std::int64_t smallest);

// Throws UsageError if the user gave a number of layers to a model that has a fixed one.
void require_no_layers(const ModelOptions& options);

}  // namespace ddp::models
