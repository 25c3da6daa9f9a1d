// SPDX-License-Identifier: Apache-2.0
// The parameters of which each rank changes only rows, as arrays of a checkpoint: those that are
// divided themselves (Shard::parameters and Shard::hybrid), those whose float32 masters are, and
// those of a model that is cut into stages, with its buffers.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_optimizer.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

class StageResidence;

class DividedParameters {
 public:
  // All must outlive this object. Optimizers that keep masters must do so already; without them,
  // the arrays are of the parameters themselves.
  explicit DividedParameters(std::span<DistributedDataParallel* const> replicas,
                             std::span<torch::optim::Optimizer* const> optimizers = {},
                             const StageResidence* stages = nullptr);

  // Whether some parameters are divided themselves.
  bool any() const;
  bool has(const torch::Tensor& parameter) const;
  bool keeps_masters() const noexcept { return !optimizers_.empty(); }
  bool has_master(const torch::Tensor& parameter) const {
    return master_keeper_of(parameter) != nullptr;
  }
  // This rank's rows of a parameter, for which has() is true, or of its master, under this name;
  // they share its memory.
  StateArray array_of(std::string name, const torch::Tensor& parameter) const;
  // Collective. Makes all parameters whole until what this returns is destroyed.
  std::vector<std::unique_ptr<WholeParameters>> gather() const;
  // A parameter that has a master was given these values, which are whole, while it was whole: this
  // rank's rows of the master take them.
  void set_master(const torch::Tensor& parameter, const torch::Tensor& values) const;
  // The parts become the rounded masters, after these were given values.
  void round_masters() const;
  // Collective: afterwards so do the parameters of all ranks.
  void publish_masters() const;

 private:
  struct Place;
  std::optional<Place> find(const torch::Tensor& parameter) const;
  ShardedOptimizer* master_keeper_of(const torch::Tensor& parameter) const;

  std::vector<ShardedDataParallel*> replicas_;
  std::vector<ShardedOptimizer*> optimizers_;
  const StageResidence* stages_;  // null: not cut
};

}  // namespace ddp::train
