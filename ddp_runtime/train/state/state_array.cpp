// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/state_array.h"

#include <c10/util/accumulate.h>

#include <utility>

namespace ddp::train {

at::IntArrayRef StateArray::sizes() const {
  return division ? at::IntArrayRef(division->sizes) : tensor.sizes();
}

std::uint64_t StateArray::bytes() const {
  return static_cast<std::uint64_t>(c10::multiply_integers(sizes())) * tensor.element_size();
}

torch::Tensor as_rows(const torch::Tensor& part, const torch::Tensor& parameter) {
  auto sizes = parameter.sizes().vec();
  if (!sizes.empty()) sizes[0] = sizes[0] * part.numel() / parameter.numel();
  return part.as_strided(sizes, parameter.strides());
}

torch::Tensor no_rows(const torch::Tensor& parameter, torch::ScalarType type) {
  auto sizes = parameter.sizes().vec();
  if (sizes.empty()) sizes.push_back(0);
  if (parameter.numel() > 0) sizes[0] = 0;
  return torch::empty(sizes, parameter.options().requires_grad(false).dtype(type));
}

StateArray with_division(StateArray array, const torch::Tensor& parameter, ArrayDivision like) {
  const bool is_whole =
      like.saved.size() == 1 && static_cast<std::int64_t>(like.saved.front()) == parameter.numel();
  if (is_whole || parameter.numel() == 0) return array;
  Division division{parameter.sizes().vec(), std::move(like.saved)};
  if (parameter.dim() > 0) {
    const std::int64_t elements_of_row = parameter.numel() / parameter.size(0);
    division.first = static_cast<std::int64_t>(like.first) / elements_of_row;
  }
  array.division = std::move(division);
  return array;
}

}  // namespace ddp::train
