// SPDX-License-Identifier: Apache-2.0
// The parameters of which each rank changes only rows (Shard::parameters and Shard::hybrid), as
// arrays of a checkpoint.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/parallel/sharded/sharded_data_parallel.h"
#include "ddp_runtime/train/state_array.h"

namespace ddp::train {

class DividedParameters {
 public:
  // The replicas must outlive this object.
  explicit DividedParameters(std::span<DistributedDataParallel* const> replicas);

  // Whether each rank has the rows of some parameter only.
  bool any() const;
  bool has(const torch::Tensor& parameter) const;
  // This rank's rows of a parameter, for which has() is true, under this name; they share its
  // memory.
  StateArray array_of(std::string name, const torch::Tensor& parameter) const;
  // Collective. Makes all parameters whole until what this returns is destroyed.
  std::vector<std::unique_ptr<WholeParameters>> gather() const;

 private:
  struct Place;
  std::optional<Place> find(const torch::Tensor& parameter) const;

  std::vector<ShardedDataParallel*> replicas_;
};

}  // namespace ddp::train
