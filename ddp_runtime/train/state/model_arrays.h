// SPDX-License-Identifier: Apache-2.0
// The model and the tensors of the program in a checkpoint: model/<name>, user/<name>.
//
// Note [Masters in a checkpoint]
// If the optimizer keeps masters, the arrays of the model are the masters: the weights are those
// values rounded, so nothing is lost, and a run resumes whether its weights are float32 or short
// now. A ShardedOptimizer has masters of its rows, so each rank saves and reads these, also of
// weights that are whole on all ranks: after reading, the ranks exchange what they have rounded.
#pragma once

#include <torch/torch.h>

#include <functional>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/state/divided_parameters.h"
#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/user_state.h"

namespace ddp::train {

class ModelArrays {
 public:
  // All arguments must outlive this object.
  ModelArrays(torch::nn::Module& module, const std::vector<torch::optim::Optimizer*>& optimizers,
              const std::vector<DistributedDataParallel*>& replicas, const UserState& user,
              const StageResidence* stages);

  // The tensors that every rank has and that exist before a checkpoint is read, under their array
  // names.
  std::vector<NamedTensor> plain() const;
  // This rank's rows of the parameters that are divided, or of their masters, and of the user's
  // arrays. They share their memory.
  std::vector<StateArray> divided() const;
  // Whether the model itself is divided.
  bool any_divided() const { return divided_.any(); }
  const UserState& user() const noexcept { return user_; }

  // By the name of its array.
  bool is_parameter(const std::string& array) const { return parameters_.contains(array); }
  // Whether the array belongs to a parameter that its replica ignores: itself, or its state.
  bool is_ignored(const std::string& array) const;

  bool has_masters() const;
  void round_masters() const;
  // Collective, after round_masters(): the parameters of all ranks are what their parts are.
  void publish_masters() const { divided_.publish_masters(); }

  // See TrainingState.
  void initialize(comm::Group& group,
                  const std::function<void(const std::vector<NamedTensor>& tensors)>& fill) const;

 private:
  std::vector<NamedTensor> whole_model() const;
  std::vector<std::pair<torch::Tensor, torch::Tensor>> copy_for_masters(
      std::vector<NamedTensor>& tensors) const;

  torch::nn::Module& module_;
  const std::vector<torch::optim::Optimizer*>& optimizers_;
  const UserState& user_;
  DividedParameters divided_;
  std::unordered_set<std::string> divided_names_;  // of parameters and buffers
  std::unordered_set<std::string> parameters_;     // by array name
  std::vector<std::string> ignored_;               // parameters that their replica ignores
};

}  // namespace ddp::train
