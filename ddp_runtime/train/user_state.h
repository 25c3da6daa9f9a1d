// SPDX-License-Identifier: Apache-2.0
// State that your own program adds to the checkpoints of its training, and gets back when the
// training is resumed: an average of the weights, a curriculum's stage, counters.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/replica.h"

namespace ddp::train {

// Rank 0's values are saved, and are restored on all ranks when the run is resumed. Every rank adds
// the same names before Trainer::fit(). A checkpoint that lacks one of them, or holds others, does
// not match the program: resuming from it is an error that names them.
class UserState {
 public:
  // Saved as array "user/<name>" with the values that it has when a save begins, between two steps;
  // overwritten, in place, on all ranks when the run is resumed. Any dtype that a checkpoint can
  // hold; the shape must not change. Throws UsageError if the name is taken or empty.
  void add(const std::string& name, const torch::Tensor& tensor);

  // A JSON value (no NaN, no infinity). `get` is called on rank 0 when a save begins; `set` on
  // every rank when the run is resumed, before the first step. An exception from `set` makes
  // resuming fail.
  void add(const std::string& name, std::function<nlohmann::json()> get,
           std::function<void(const nlohmann::json&)> set);

  // Used by the training run's checkpoint:
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  nlohmann::json values() const;
  // Throws UsageError unless `values` has exactly the names that were added.
  void require_fit(const nlohmann::json& values) const;
  // Call after require_fit(). Throws UsageError naming the value that `set` refused.
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
