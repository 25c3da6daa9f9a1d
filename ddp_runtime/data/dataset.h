// SPDX-License-Identifier: Apache-2.0
// Data sets: access to samples by index.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::data {

// inputs: float [n, channels, height, width] or [n, features]; targets: int64 [n]. For text, inputs
// are token ids, int64 [n, context], and targets the token after each of them, int64 [n, context].
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
  // Further tensors of the same samples, [n, ...] of any type, in an order that the data set
  // defines; for a task with a batch_loss.
  std::vector<torch::Tensor> more = {};
};

// The batch with `function` applied to each of its tensors.
template <class Function>
Batch for_each_tensor(const Batch& batch, const Function& function) {
  Batch result{function(batch.inputs), function(batch.targets)};
  result.more.reserve(batch.more.size());
  for (const auto& tensor : batch.more) result.more.push_back(function(tensor));
  return result;
}

// Properties of the data that a model needs to know.
struct SampleShape {
  std::vector<std::int64_t> input;  // without the batch dimension
  std::int64_t classes = 0;
  bool tokens = false;  // the data is text
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;
  virtual SampleShape shape() const = 0;
  // Samples `indices`, in that order. Several threads may call it concurrently.
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // The same samples as training uses them in epoch `epoch`: augmented, if augmentation is enabled.
  virtual Batch draw(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const {
    return get(indices);
  }
};

struct DataPair {
  std::string name;  // as in the specification: "digits", "mnist:/data"
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> evaluation;  // null: no evaluation
};

}  // namespace ddp::data
