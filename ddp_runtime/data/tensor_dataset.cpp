#include "ddp_runtime/data/tensor_dataset.h"

#include <cstring>

namespace ddp::data {

TensorDataset::TensorDataset(torch::Tensor inputs, torch::Tensor targets, std::int64_t classes)
    : inputs_(inputs.contiguous()), targets_(targets.contiguous()), classes_(classes) {}

SampleShape TensorDataset::shape() const {
  return {inputs_.sizes().slice(1).vec(), classes_};
}

// Rows are copied by hand: index_select() would start the tensor library's own threads inside the
// loader's, which then fight with the ones that train.
Batch TensorDataset::get(std::span<const std::int64_t> indices) const {
  const auto n = static_cast<std::int64_t>(indices.size());
  auto sizes = inputs_.sizes().vec();
  sizes[0] = n;
  Batch batch{torch::empty(sizes, inputs_.options()), torch::empty({n}, targets_.options())};
  const auto row = static_cast<std::size_t>(inputs_.numel() / inputs_.size(0));
  const float* from = inputs_.data_ptr<float>();
  float* to = batch.inputs.data_ptr<float>();
  const std::int64_t* labels = targets_.data_ptr<std::int64_t>();
  std::int64_t* batch_labels = batch.targets.data_ptr<std::int64_t>();
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const auto index = static_cast<std::size_t>(indices[i]);
    std::memcpy(to + i * row, from + index * row, row * sizeof(float));
    batch_labels[i] = labels[index];
  }
  return batch;
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
