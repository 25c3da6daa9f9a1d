// Samples by number.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace ddp::data {

// inputs: float [n, channels, height, width] or [n, features], targets: int64 [n]; of a text, token
// numbers, int64 [n, context], and the token after each of them, int64 [n, context].
struct Batch {
  torch::Tensor inputs;
  torch::Tensor targets;
};

// What a model needs to know of its data.
struct SampleShape {
  std::vector<std::int64_t> input;  // without the batch dimension
  std::int64_t classes = 0;
  bool tokens = false;  // a text
};

class Dataset {
 public:
  virtual ~Dataset() = default;
  Dataset() = default;
  Dataset(const Dataset&) = delete;
  Dataset& operator=(const Dataset&) = delete;

  virtual std::int64_t size() const = 0;
  virtual SampleShape shape() const = 0;
  // Samples `indices`, in that order. Called from several threads at once.
  virtual Batch get(std::span<const std::int64_t> indices) const = 0;
  // The same samples as training sees them in epoch `epoch`: augmented, if they are.
  virtual Batch draw(std::span<const std::int64_t> indices, std::int64_t /*epoch*/) const {
    return get(indices);
  }
};

struct DataPair {
  std::string name;  // as in the specification: "digits", "mnist:/data"
  std::shared_ptr<const Dataset> train;
  std::shared_ptr<const Dataset> evaluation;  // null: nothing is evaluated
};

}  // namespace ddp::data
