// SPDX-License-Identifier: Apache-2.0
// Everything a run needs to continue as if it had not stopped, as named arrays and a small JSON
// text.
//
//   model/<name>              parameters and buffers, by the module's own names
//   optim/<parameter>/<field> the optimizer's state
//   local/...                 what each rank has on its own, see RankState
//   user/<name>               tensors that the program added
//   rng/rank-<r>/cpu          the random number generator of each rank
//   rng/rank-<r>/cuda         that of its GPU, for a model on GPUs
//   ddp/gradient_order        determines which gradients share a bucket; absent while unknown.
//                             That of replica number r, from 1, is ddp/gradient_order-<r>
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/train/state/position.h"
#include "ddp_runtime/train/state/state_array.h"
#include "ddp_runtime/train/state/user_state.h"

namespace ddp {
class DistributedDataParallel;
}  // namespace ddp

namespace ddp::ckpt {
class Checkpoint;
}  // namespace ddp::ckpt

namespace ddp::train {

class Generators;
class GradientOrders;
class ModelArrays;
class OptimizerStates;
class RankState;
class StageResidence;

class TrainingState {
 public:
  // `replica`, which may be null, provides the gradient order; `own`, which may be null, what each
  // rank has on its own. `stages`: of a model that is cut, whose optimizer has this rank's
  // parameters. All arguments must outlive this object.
  TrainingState(comm::Group& group, torch::nn::Module& module, torch::optim::Optimizer& optimizer,
                DistributedDataParallel* replica, const UserState& user, RankState* own = nullptr,
                const StageResidence* stages = nullptr);
  // For several models that are trained together, such as a generator and a discriminator:
  // `module` has all of them as its submodules. Each parameter has at most one of the optimizers.
  // The replicas must be the same in each run, in the same order; the number of optimizers may
  // change. Throws UsageError if two optimizers update one parameter.
  TrainingState(comm::Group& group, torch::nn::Module& module,
                std::vector<torch::optim::Optimizer*> optimizers,
                std::vector<DistributedDataParallel*> replicas, const UserState& user,
                const StageResidence* stages = nullptr);
  TrainingState(const TrainingState&) = delete;
  TrainingState& operator=(const TrainingState&) = delete;
  ~TrainingState();

  // From now on, `replica` takes the place of the only one, which may have been destroyed.
  void replace_replica(DistributedDataParallel* replica);

  // Throws UsageError naming a tensor of the model or of the user whose type cannot be stored in a
  // checkpoint, and for an optimizer whose state cannot be. Call it before training: a failure at
  // the first save would waste the work until then.
  void require_storable() const;

  // Collective. Returns the arrays to save, the same on every rank, except that each has its own
  // rows of divided ones, such as the state of a ShardedOptimizer. The tensors own or share the
  // state, on its device, so write or copy them before the next step. Throws RuntimeError if the
  // ranks' parameters differ.
  std::vector<StateArray> collect();

  // Whether each rank has its rows of some arrays only.
  bool is_divided() const;

  // Whether every rank has the same bytes of this array between two steps, so that any rank may
  // save it. Buffers (the statistics of BatchNorm) differ between ranks, and so do parameters that
  // their replica ignores; those of rank 0 are saved.
  bool is_replicated(const std::string& array) const;

  // Collective, before the first step. On rank 0, calls `fill` with the parameters and buffers of
  // the model, by the module's names; see Note [Masters in a checkpoint] for short weights. All
  // ranks then take over rank 0's values.
  void initialize(const std::function<void(const std::vector<NamedTensor>& tensors)>& fill);

  // From now on, loads only what an evaluation needs: the model and the user's tensors. All that
  // belongs to the training stays as it is, and may be of another kind than in the checkpoint.
  void load_only_weights();
  // On rank 0, after load() of only the weights: the decay of an average of the weights that the
  // checkpoint has besides them, and that is not among the user's tensors.
  std::optional<double> average_left() const noexcept { return average_left_; }

  // On rank 0: reads a checkpoint into the model, the optimizer and the user's tensors; of divided
  // arrays only this rank's rows. All bytes that other ranks do not need are read. Throws as
  // Checkpoint::read_into does, and UsageError if the optimizer does not match.
  void load(const ckpt::Checkpoint& checkpoint);
  // On another rank: reads this rank's rows of divided arrays. Throws as load() does.
  void load_rows(const ckpt::Checkpoint& checkpoint);
  // Collective, instead of load_rows(), if a rank cannot read the checkpoint: rank 0, which passes
  // it, reads one divided array at a time and sends it to all. Throws on rank 0 as load() does; the
  // others return then.
  void send_rows(const ckpt::Checkpoint* checkpoint);
  // Collective, after the ranks have loaded: all take over rank 0's model, optimizer and user's
  // tensors, unless they are divided, and restore their own generators. Ranks that are not in the
  // checkpoint get a generator seeded from `seed`.
  void distribute(std::uint64_t seed);

  const UserState& user() const noexcept;

 private:
  bool is_trained(const std::string& array) const;
  std::vector<std::string> optimizer_names(const ckpt::Checkpoint& checkpoint) const;
  torch::ScalarType type_in(const ckpt::Checkpoint& checkpoint, const std::string& name,
                            const torch::Tensor& tensor) const;
  std::vector<StateArray> divided_state_for(const ckpt::Checkpoint& checkpoint);
  void verify_unused(const ckpt::Checkpoint& checkpoint, const std::vector<StateArray>& rows) const;
  std::vector<StateArray> own_places(const ckpt::Checkpoint& checkpoint);

  comm::Group& group_;
  std::vector<DistributedDataParallel*> replicas_;
  std::vector<torch::optim::Optimizer*> optimizers_;
  RankState* own_ = nullptr;
  std::unique_ptr<ModelArrays> model_;
  std::unique_ptr<OptimizerStates> optimizer_state_;
  std::unique_ptr<Generators> generators_;
  std::unique_ptr<GradientOrders> orders_;
  bool only_weights_ = false;
  std::optional<double> average_left_;
  // Of the optimizers that are not divided; rank 0, between load() and distribute().
  std::vector<StateArray> loaded_state_;
};

}  // namespace ddp::train
