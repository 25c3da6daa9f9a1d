// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/torch_dataset.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/errors.h"

namespace ddp::data {
namespace {

torch::Tensor stacked(const std::vector<torch::Tensor>& tensors, const char* what,
                      std::span<const std::int64_t> indices) {
  for (std::size_t i = 1; i < tensors.size(); ++i) {
    if (tensors[i].sizes() == tensors[0].sizes()) continue;
    throw UsageError(fmt::format(
        "the {} of sample {} have the shape [{}], and those of sample {} [{}]; give from_torch() a "
        "function that puts samples of different shapes together, for example by padding",
        what, indices[0], fmt::join(tensors[0].sizes(), ", "), indices[i],
        fmt::join(tensors[i].sizes(), ", ")));
  }
  return torch::stack(tensors);
}

}  // namespace

Batch stack_examples(const std::vector<torch::data::Example<>>& examples,
                     std::span<const std::int64_t> indices) {
  std::vector<torch::Tensor> inputs;
  std::vector<torch::Tensor> targets;
  for (const auto& example : examples) {
    inputs.push_back(example.data);
    targets.push_back(example.target);
  }
  return {stacked(inputs, "inputs", indices), stacked(targets, "targets", indices)};
}

std::int64_t require_size(bool known, std::size_t size) {
  if (known) return static_cast<std::int64_t>(size);
  throw UsageError(
      "a data set without a size cannot be divided among ranks; give it a size() that returns the "
      "number of its samples");
}

}  // namespace ddp::data
