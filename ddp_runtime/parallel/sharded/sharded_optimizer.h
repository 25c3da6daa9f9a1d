// SPDX-License-Identifier: Apache-2.0
// An optimizer whose state and work are divided among the ranks: stage 1 of ZeRO (Rajbhandari et
// al., 2020), for data parallelism in a loop of your own.
//
//   ddp::DistributedDataParallel replica(*net, group);
//   ddp::ShardedOptimizer optimizer(
//       std::make_unique<ddp::optim::AdamW>(net->parameters(), torch::optim::AdamWOptions(1e-3)),
//       group);
//   ...
//   step.backward(loss);
//   step.apply(optimizer);
//
// Or for a ShardedDataParallel, which also divides gradients or parameters: see there.
//
// Each rank updates about 1/n of the rows of the parameters, and keeps the optimizer's state for
// these only; then the ranks exchange what they have updated. The parameters have the same bits as
// without shards, because the optimizers that can be divided update each element by itself.
//
// If the optimizer keeps float32 masters of short parameters (keep_masters(),
// optim/master_weights.h, before it is divided), each rank keeps those of its rows. Parameters are
// exchanged in their own type, as are gradients, unless DataParallelOptions::reduce_type is set.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/optim/abilities.h"
#include "ddp_runtime/optim/skipped_steps.h"
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"

namespace ddp {

namespace optim {
class MasterWeights;
}  // namespace optim

class ShardedDataParallel;

class ShardedOptimizer final : public torch::optim::Optimizer,
                               public optim::SkipsSteps,
                               public optim::DividesParameters {
 public:
  // Collective. Takes over an optimizer without state: SGD, Adam, AdamW or RMSprop, of libtorch or
  // ddp::optim. Its parameters must be dense, have the same values on all ranks, and be updated by
  // no other optimizer; their values move to memory of the group. `group` must outlive this object.
  // Throws UsageError, on all ranks, for other optimizers and parameters.
  ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer, comm::Group& group);
  // The same for parameters that are divided already. Parameters of `replica` that the optimizer
  // does not have keep their values. `replica` must outlive this object. Throws UsageError also if
  // a parameter is not one of `replica`.
  ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer,
                   ShardedDataParallel& replica);
  ShardedOptimizer(const ShardedOptimizer&) = delete;
  ShardedOptimizer& operator=(const ShardedOptimizer&) = delete;
  ~ShardedOptimizer() override;

  // Collective: all ranks call it with the same gradients, options and groups. The options, such as
  // the learning rate, are those of param_groups(). A parameter without a gradient keeps its value
  // and its state. Throws UsageError for sparse gradients, and if groups were added; RuntimeError
  // if a parameter's memory was replaced, as by Module::to(), and, in the first step and in every
  // 100th after it, if the ranks' learning rates differ or some lack gradients that others have.
  torch::Tensor step(LossClosure closure = nullptr) override;

  // See optim/skipped_steps.h. A step with a flag, which must be the same on all ranks, throws
  // UsageError if the optimizer that is divided does not take flags.
  void settle_step(bool skipped) override;

  // Throw UsageError: files of libtorch have no parts.
  void save(torch::serialize::OutputArchive& archive) const override;
  void load(torch::serialize::InputArchive& archive) override;

  // What updates this rank's rows: its parameters are parts of the real ones, as vectors, and its
  // state is all that this rank has.
  torch::optim::Optimizer& shard() const noexcept override { return *optimizer_; }
  comm::Group& group() const noexcept { return shards_->groups().all; }
  // The ranks that divide.
  comm::Group& sharing() const noexcept { return shards_->groups().sharing; }
  // Whether this is an optimizer of these parameters.
  bool is_of(const ParameterShards& shards) const noexcept { return shards_ == &shards; }
  // Reduces the gradients in proportion, so that their 2-norm over all ranks and parameters that
  // are divided is at most this; if the norm is not finite, they become NaN. Collective, before
  // step(). Replaces torch::nn::utils::clip_grad_norm_(), which knows the gradients of one rank.
  void clip_gradients(double max_norm);
  // This rank's parts of the averaged gradients, as vectors that share their memory. Call it
  // between the last backward and step().
  std::vector<torch::Tensor> gradients() const;

  // For checkpoints:

  // This rank's part of a parameter, as shard() has it; undefined if it has no rows of it, or if
  // the parameter is not one of this optimizer.
  torch::Tensor part_of(const torch::Tensor& parameter) const;
  // Nobody saves a parameter that is not one of this optimizer.
  ArrayDivision division_of(const torch::Tensor& parameter) const;
  // Whether short parameters have float32 masters, and whether this one has.
  bool keeps_masters() const { return masters() != nullptr; }
  bool has_master(const torch::Tensor& parameter) const;
  // What updates this rank's part: its master, a vector, if there is one, or the part itself.
  // Undefined without rows.
  torch::Tensor values_of(const torch::Tensor& parameter) const;
  // Rounds the masters of this rank's rows, which were given values, into its parts.
  void round_masters() const;
  // Collective: the parameters of all ranks are what the parts are now.
  void publish_parts() { shards_->publish(); }

 private:
  struct Array {
    torch::Tensor parameter;
    PlaceInFlat place;
    const FlatShard::Part* part = nullptr;  // null: this rank has no rows of it
    std::int64_t version = 0;               // of the parameter, after the last step
  };
  class LentGradients;

  explicit ShardedOptimizer(std::unique_ptr<torch::optim::Optimizer> optimizer);
  const Array* find_array(const torch::Tensor& parameter) const;
  void list_arrays();
  void give_parts_to_the_optimizer();
  void require_usable() const;
  void require_same_update() const;
  void take_options();
  static void show_change(const Array& array);
  optim::MasterWeights* masters() const;
  optim::SkipsSteps& skips_of_shard() const;

  std::unique_ptr<torch::optim::Optimizer> optimizer_;
  std::unique_ptr<ParameterShards> own_;  // null: those of a replica
  ParameterShards* shards_ = nullptr;
  std::vector<Array> arrays_;  // in the order of the groups
  std::int64_t steps_ = 0;
};

}  // namespace ddp
