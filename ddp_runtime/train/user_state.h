// What a program of its own adds to the checkpoints of its training, and finds again when the
// training is resumed: an average of the weights, a curriculum's stage, counters.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/replica.h"

namespace ddp::train {

// Rank 0's values are saved, and count for all ranks when resumed. Every rank adds the same names
// before Trainer::fit(). A checkpoint that lacks one of them, or holds others, does not fit the
// program: resuming from it is an error that names them.
class UserState {
 public:
  // Saved as array "user/<name>" with the values that it has when a save begins, between two steps;
  // overwritten, in place, on all ranks when resumed. Any dtype that a checkpoint holds; the shape
  // stays. Throws UsageError if the name is taken or empty.
  void add(const std::string& name, const torch::Tensor& tensor);

  // A value for JSON (no NaN, no infinity). `get` is called on rank 0 when a save begins; `set` on
  // every rank when resumed, before the first step. What `set` throws is an error of the resume.
  void add(const std::string& name, std::function<nlohmann::json()> get,
           std::function<void(const nlohmann::json&)> set);

  // For the checkpoint of a training run:
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  nlohmann::json values() const;
  // Throws UsageError unless `values` has the names that were added, and no others.
  void require_fit(const nlohmann::json& values) const;
  // After require_fit(). Throws UsageError naming the value that `set` did not take.
  void restore(const nlohmann::json& values) const;

 private:
  struct Value {
    std::string name;
    std::function<nlohmann::json()> get;
    std::function<void(const nlohmann::json&)> set;
  };

  void require_new(const std::string& name) const;

  std::vector<NamedTensor> tensors_;
  std::vector<Value> values_;
};

}  // namespace ddp::train
