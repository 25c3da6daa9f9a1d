// SPDX-License-Identifier: Apache-2.0
// Common parts of the convolutional models.
#pragma once

#include "ddp_runtime/models/model.h"

namespace ddp::models {

// The convolution has no bias, because batch normalization follows. It is initialized for a ReLU
// after that, preserving the variance in backward: He et al., "Delving Deep into Rectifiers"
// (2015).
torch::nn::Conv2d he_convolution(std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t kernel, std::int64_t stride = 1);

// Throws UsageError unless a sample is [channels, height, width] with sides of at least `smallest`.
void require_images(const ModelOptions& options, std::int64_t smallest);

// Throws UsageError if the user set a number of layers for a model with a fixed number.
void require_no_layers(const ModelOptions& options);

}  // namespace ddp::models
