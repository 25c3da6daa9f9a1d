// SPDX-License-Identifier: Apache-2.0
// An optimizer's state by parameter name, so that it can be stored, compared and passed to another
// process. The optimizers themselves key it by address.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

class DividedState;
class StagedState;
class StageResidence;
class StateFields;

// Of parameters that are on some ranks only: where, and all ranks.
struct Resident {
  comm::Group& group;
  const StageResidence& at;
};

// The state of a ShardedOptimizer is that of the optimizer which it divides, with this rank's rows:
// arrays() is collective then. So is that of a model which is cut into stages.
class OptimizerState {
 public:
  // Supports the optimizers that state_fields_of() knows: the functions below throw UsageError for
  // others. Both arguments must outlive this object.
  OptimizerState(torch::optim::Optimizer& optimizer, std::vector<NamedTensor> parameters,
                 const std::optional<Resident>& resident = {});
  OptimizerState(const OptimizerState&) = delete;
  OptimizerState& operator=(const OptimizerState&) = delete;
  ~OptimizerState();

  // Throws UsageError if the optimizer is of another kind.
  void require_known() const;

  // The existing state, for example "<parameter>/momentum_buffer" for SGD; "/exp_avg",
  // "/exp_avg_sq" and "/step" (an int64 scalar) for Adam. Empty before the first step, except for
  // Adagrad. The tensors share the optimizer's memory, except for the steps, which are copies.
  std::vector<StateArray> arrays() const;

  // Allocates state for exactly these names and returns the tensors to be filled, in the same
  // order. State is float32 if the parameter has a master. Throws UsageError if a name does not
  // belong to this optimizer and these parameters. Call commit() after filling them.
  std::vector<StateArray> allocate(std::span<const std::string> names);
  void commit(std::span<const StateArray> filled);

  // Whether each rank has its rows of the state only.
  bool is_divided() const noexcept { return divided_ != nullptr || staged_ != nullptr; }

 private:
  StateArray allocate(const NamedTensor& parameter, const std::string& field);
  torch::Tensor values_of(const torch::Tensor& parameter) const;
  const NamedTensor& parameter_of(const std::string& name, std::string& field) const;

  torch::optim::Optimizer& optimizer_;
  std::unique_ptr<DividedState> divided_;  // set for a ShardedOptimizer
  std::unique_ptr<StagedState> staged_;    // set for a model that is cut into stages
  std::vector<NamedTensor> parameters_;
  std::unordered_map<std::string, NamedTensor> by_name_;
  const StateFields* fields_;  // null: of another kind
};

}  // namespace ddp::train
