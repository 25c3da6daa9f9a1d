// SPDX-License-Identifier: Apache-2.0
// State that a program adds to the checkpoints of its training and gets back on resume: an average
// of the weights, the stage of a curriculum, counters.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <utility>
#include <vector>

#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

// Rank 0's values are saved, and are restored on all ranks when the run resumes. Every rank must
// add the same names before Trainer::fit(). If a checkpoint lacks one of them or has additional
// ones, resuming fails with an error that names them.
class UserState {
 public:
  // Saves `tensor` as array "user/<name>", with its values at the beginning of a save, between two
  // steps. Resuming overwrites it in place on all ranks. Any dtype that a checkpoint can hold; the
  // shape must not change. Throws UsageError if the name is taken or empty.
  void add(const std::string& name, const torch::Tensor& tensor);

  // The same for an array of which each rank has rows, which it saves and gets back: all ranks add
  // the same name, each with its part.
  void add_rows(const std::string& name, StateArray rows);

  // A JSON value (no NaN, no infinity). `get` is called on rank 0 at the beginning of a save; `set`
  // on every rank on resume, before the first step. Resuming fails if `set` throws.
  void add(const std::string& name, std::function<nlohmann::json()> get,
           std::function<void(const nlohmann::json&)> set);

  // Used by the checkpoints of the training run:
  const std::vector<NamedTensor>& tensors() const noexcept { return tensors_; }
  const std::vector<StateArray>& rows() const noexcept { return rows_; }
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
  std::vector<StateArray> rows_;
  std::vector<Value> values_;
};

}  // namespace ddp::train
