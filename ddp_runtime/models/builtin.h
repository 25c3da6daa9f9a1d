// The constructors behind make_model().
#pragma once

#include "ddp_runtime/models/model.h"

namespace ddp::models {

// `layers` hidden layers of `width` units with ReLU (default 2 x 128), then a linear one.
std::shared_ptr<Model> make_mlp(const ModelOptions& options);

// Two 3x3 convolutions (width and 2 x width channels, default 16) with ReLU and 2x2 pooling, then
// two linear layers. For images with one or more channels, at least 4 x 4.
std::shared_ptr<Model> make_mnist_cnn(const ModelOptions& options);

}  // namespace ddp::models
