// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/train/state/read_target.h"

#include <utility>

#include "ddp_runtime/train/state/array_views.h"

namespace ddp::train {

ReadTarget host_target(StateArray array, torch::ScalarType type) {
  const auto tensor = array.tensor;
  if (tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == type) {
    return {std::move(array)};
  }
  array.tensor = torch::empty(tensor.sizes(), torch::TensorOptions(torch::kCPU).dtype(type));
  return {std::move(array), tensor};
}

ReadTarget target_beside(StateArray array, torch::ScalarType type) {
  const auto rows = array.tensor;
  const auto options = torch::TensorOptions(torch::kCPU).dtype(type);
  if (array.division && array.division->sizes.empty()) {
    array.division.reset();
    array.tensor = torch::empty({}, options);
    return {std::move(array), rows.numel() == 1 ? rows : torch::Tensor()};
  }
  array.tensor = torch::empty(rows.sizes(), options);
  return {std::move(array), rows};
}

std::vector<std::int64_t> shape_of(const ckpt::StoredArray& array) {
  return {array.shape.begin(), array.shape.end()};
}

void read_into(const std::vector<ReadTarget>& targets, const ckpt::Checkpoint& checkpoint,
               ckpt::Match match) {
  std::vector<StateArray> arrays;
  for (const auto& target : targets) arrays.push_back(target.array);
  checkpoint.read_into(mutable_views(arrays), match);
  for (const auto& target : targets) {
    if (target.destination.defined()) target.destination.copy_(target.array.tensor);
  }
}

}  // namespace ddp::train
