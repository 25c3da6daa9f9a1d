// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/models/convolution.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/errors.h"

namespace ddp::models {

torch::nn::Conv2d he_convolution(std::int64_t in_channels, std::int64_t out_channels,
                                 std::int64_t kernel, std::int64_t stride) {
  torch::nn::Conv2d convolution(torch::nn::Conv2dOptions(in_channels, out_channels, kernel)
                                    .stride(stride)
                                    .padding(kernel / 2)
                                    .bias(false));
  torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
  return convolution;
}

void require_images(const ModelOptions& options, std::int64_t smallest) {
  const auto& shape = options.input;
  if (shape.size() == 3 && shape[1] >= smallest && shape[2] >= smallest) return;
  throw UsageError(fmt::format(
      "{0} works on images of at least {1} x {1} pixels, but the data has samples of shape [{2}]; "
      "use --model mlp",
      options.name, smallest, fmt::join(shape, ", ")));
}

void require_no_layers(const ModelOptions& options) {
  if (options.layers == 0) return;
  throw UsageError(
      fmt::format("{} has a fixed number of layers; leave out --layers", options.name));
}

}  // namespace ddp::models
