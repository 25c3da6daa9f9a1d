// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/data/tensor_dataset.h"

#include <fmt/format.h>

#include <cstring>

#include "base/errors.h"

namespace ddp::data {
namespace {

torch::Tensor checked_inputs(const torch::Tensor& inputs) {
  if (inputs.dim() < 1 || inputs.size(0) < 1) {
    throw UsageError("a TensorDataset needs at least one sample: inputs are [n, ...]");
  }
  const auto type = inputs.scalar_type();
  if (type != torch::kFloat32 && type != torch::kInt64) {
    throw UsageError(fmt::format(
        "a TensorDataset takes inputs of type Float (or Long, for token numbers), not {}; convert "
        "them with .to(torch::kFloat32)",
        c10::toString(type)));
  }
  return inputs.contiguous();
}

torch::Tensor checked_targets(const torch::Tensor& targets, std::int64_t samples,
                              std::int64_t classes) {
  if (targets.dim() < 1 || targets.size(0) != samples) {
    throw UsageError(fmt::format("a TensorDataset of {} samples needs as many targets, not {}",
                                 samples, targets.dim() < 1 ? 0 : targets.size(0)));
  }
  if (classes <= 0) return targets.contiguous();
  if (!c10::isIntegralType(targets.scalar_type(), /*includeBool=*/true)) {
    throw UsageError(
        fmt::format("a TensorDataset with classes takes targets that are class numbers (an integer "
                    "type), not {}; "
                    "for a custom loss set 0 classes",
                    c10::toString(targets.scalar_type())));
  }
  const auto numbers = targets.to(torch::kInt64).contiguous();
  const auto wrong = numbers.ne(-100).logical_and(numbers.lt(0).logical_or(numbers.ge(classes)));
  if (wrong.any().item<bool>()) {
    throw UsageError(
        fmt::format("a TensorDataset of {} classes has the target {}; targets are 0 to {}", classes,
                    numbers.masked_select(wrong)[0].item<std::int64_t>(), classes - 1));
  }
  return numbers;
}

std::size_t row_bytes(const torch::Tensor& tensor) {
  return tensor.nbytes() / static_cast<std::size_t>(tensor.size(0));
}

// Rows are copied by hand: index_select() would start the tensor library's own threads inside the
// loader threads, and they would compete with the training threads.
torch::Tensor rows_of(const torch::Tensor& from, std::span<const std::int64_t> indices) {
  auto sizes = from.sizes().vec();
  sizes[0] = static_cast<std::int64_t>(indices.size());
  auto to = torch::empty(sizes, from.options());
  const std::size_t bytes = row_bytes(from);
  const auto* const source = static_cast<const std::byte*>(from.data_ptr());
  auto* const target = static_cast<std::byte*>(to.data_ptr());
  for (std::size_t i = 0; i < indices.size() && bytes > 0; ++i) {
    std::memcpy(target + i * bytes, source + static_cast<std::size_t>(indices[i]) * bytes, bytes);
  }
  return to;
}

}  // namespace

TensorDataset::TensorDataset(const torch::Tensor& inputs, const torch::Tensor& targets,
                             std::int64_t classes)
    : inputs_(checked_inputs(inputs)),
      targets_(checked_targets(targets, inputs_.size(0), classes)),
      classes_(classes) {}

SampleShape TensorDataset::shape() const {
  return {inputs_.sizes().slice(1).vec(), classes_, inputs_.scalar_type() == torch::kInt64};
}

Batch TensorDataset::get(std::span<const std::int64_t> indices) const {
  return {rows_of(inputs_, indices), rows_of(targets_, indices)};
}

Split hold_out_a_tenth(const torch::Tensor& inputs, const torch::Tensor& targets,
                       std::int64_t classes) {
  const auto number = torch::arange(inputs.size(0));
  const auto held_out = number.remainder(10).eq(9);
  const auto part = [&](const torch::Tensor& mask) {
    const auto rows = mask.nonzero().squeeze(1);
    return std::make_shared<TensorDataset>(inputs.index_select(0, rows),
                                           targets.index_select(0, rows), classes);
  };
  return {part(held_out.logical_not()), part(held_out)};
}

}  // namespace ddp::data
