// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/models/matrix_products.h"

namespace ddp::models {

torch::Tensor through(const torch::nn::Linear& layer, const torch::Tensor& x) {
  return at::linear(x, layer->weight, layer->bias);
}

torch::Tensor scores_of(const torch::Tensor& x, const torch::Tensor& weight, bool padded) {
  const auto classes = weight.size(0);
  const auto missing = (kRowMultiple - classes % kRowMultiple) % kRowMultiple;
  if (!padded || missing == 0) return at::linear(x, weight);
  return at::linear(x, at::constant_pad_nd(weight, {0, 0, 0, missing})).narrow(-1, 0, classes);
}

}  // namespace ddp::models
