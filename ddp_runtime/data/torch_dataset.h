// SPDX-License-Identifier: Apache-2.0
// Data sets of torch::data, and data sets whose samples must be put together by a function of the
// program, such as sentences that are padded to the longest one of a batch.
//
//   struct Sentences : torch::data::Dataset<Sentences, Sentence> { ... };
//   ddp::data::DataPair data{"sentences", ddp::data::from_torch(Sentences(), {}, pad), nullptr};
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "ddp_runtime/data/dataset.h"

namespace ddp::data {

// Puts the samples one above the other: the shapes [...] become [n, ...]. Throws UsageError naming
// two samples of different shapes. `indices` are the samples' numbers, for that message.
Batch stack_examples(const std::vector<torch::data::Example<>>& examples,
                     std::span<const std::int64_t> indices);

// The number of samples, which the source of a data set knows or not. Throws UsageError if not.
std::int64_t require_size(bool known, std::size_t size);

// `Source` is a torch::data::datasets::Dataset, whose get(index) may be called by several threads
// at once: those of the loader, if there are several, and the one that evaluates.
template <class Source>
class TorchDataset final : public Dataset {
 public:
  using Example = typename Source::ExampleType;
  // Makes a batch of samples, whose numbers are `indices`.
  using Collate = std::function<Batch(const std::vector<Example>& examples,
                                      std::span<const std::int64_t> indices)>;

  // `shape` is for models that ask for it. Throws UsageError if the source does not know its size.
  TorchDataset(Source source, SampleShape shape, Collate collate)
      : source_(std::move(source)),
        shape_(std::move(shape)),
        collate_(std::move(collate)),
        size_(require_size(source_.size().has_value(), source_.size().value_or(0))) {}

  std::int64_t size() const override { return size_; }
  SampleShape shape() const override { return shape_; }
  Batch get(std::span<const std::int64_t> indices) const override {
    std::vector<Example> examples;
    examples.reserve(indices.size());
    for (const auto index : indices) {
      examples.push_back(source_.get(static_cast<std::size_t>(index)));
    }
    return collate_(examples, indices);
  }

 private:
  mutable Source source_;  // get() of torch::data is not const
  SampleShape shape_;
  Collate collate_;
  std::int64_t size_;
};

// Of samples that are one tensor and one target each, all of the same shapes.
template <class Source>
std::shared_ptr<const Dataset> from_torch(Source source, SampleShape shape = {}) {
  return std::make_shared<TorchDataset<Source>>(std::move(source), std::move(shape),
                                                stack_examples);
}

// `collate` maps a vector of samples to a batch.
template <class Source, class Collate>
std::shared_ptr<const Dataset> from_torch(Source source, SampleShape shape, Collate collate) {
  return std::make_shared<TorchDataset<Source>>(
      std::move(source), std::move(shape),
      [collate = std::move(collate)](const auto& examples, std::span<const std::int64_t>) {
        return collate(examples);
      });
}

}  // namespace ddp::data
