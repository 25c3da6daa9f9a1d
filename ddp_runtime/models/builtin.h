// SPDX-License-Identifier: Apache-2.0
// The constructors behind make_model(). Each throws UsageError if it cannot build the model.
#pragma once

#include "ddp_runtime/models/model.h"

namespace ddp::models {

// `layers` hidden layers of `width` units with ReLU (default 2 x 128), then a linear layer.
std::shared_ptr<Model> make_mlp(const ModelOptions& options);

// Two 3x3 convolutions (width and 2 x width channels, default 16) with ReLU and 2x2 pooling, then
// two linear layers. For images with one or more channels, at least 4 x 4.
std::shared_ptr<Model> make_mnist_cnn(const ModelOptions& options);

// Three stages of two 3x3 convolutions with batch normalization and ReLU (width, 2 x width and
// 4 x width channels, default 32), each followed by 2x2 pooling; then the mean over the image and a
// linear layer. For images of at least 8 x 8.
std::shared_ptr<Model> make_cifar_cnn(const ModelOptions& options);

// He et al., "Deep Residual Learning for Image Recognition" (2016), in torchvision's form and with
// its parameter names: 18 layers of basic blocks, or 50 of bottlenecks with the stride in the 3x3
// convolution. Images of 32 x 32 or smaller get the paper's CIFAR stem, one 3x3 convolution without
// pooling. `width` is that of the first stage (default 64).
std::shared_ptr<Model> make_resnet18(const ModelOptions& options);
std::shared_ptr<Model> make_resnet50(const ModelOptions& options);

// A decoder-only transformer like GPT-2 (Radford et al., 2019): pre-norm, causal attention, learned
// positions, output tied to the token embedding. Default: 4 layers of width 128 with 4 heads. The
// data determines the context length.
std::shared_ptr<Model> make_gpt(const ModelOptions& options);

}  // namespace ddp::models
