// SPDX-License-Identifier: Apache-2.0
// Builds a model of which a rank never has all weights.
//
//   ddp::ShardedBuild build(group);
//   Net net(layers, [&](torch::nn::Module& block) { build.add(block); });  // after each block
//   ddp::ShardedDataParallel replica(*net, group, {.units = {"blocks.*"}, .build = &build});
//
// Each rank builds a block as if it were alone, with all random numbers, and keeps its part of it
// before the next one is built. So the initial values are those of a model that is built whole.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/memory/whole_memory.h"

namespace ddp {

class ShardedBuild {
 public:
  // Modules are moved to `device` first, if it is given. `group` must outlive this object.
  explicit ShardedBuild(comm::Group& group, std::optional<torch::Device> device = {});
  ShardedBuild(const ShardedBuild&) = delete;
  ShardedBuild& operator=(const ShardedBuild&) = delete;

  // Collective. Divides the parameters of a part of the model, which take rank 0's values. They
  // have no values until a ShardedDataParallel of the whole model gets this object. Throws
  // UsageError for parameters that cannot be divided; RuntimeError, the same on all ranks, if the
  // parts of the ranks differ.
  void add(torch::nn::Module& part);

  // For ShardedDataParallel. All are collective unless the parameter was not added, or has moved.

  bool has(const torch::Tensor& parameter) const;
  // Gives the parameter its values, and those that were divided with it.
  void make_whole(const torch::Tensor& parameter);
  // Frees the memory of what has moved elsewhere.
  void forget_moved();

 private:
  void divide(std::vector<torch::Tensor> parameters);
  FlatShard* find(const torch::Tensor& parameter) const;

  comm::Group& group_;
  std::optional<torch::Device> device_;
  WholeMemory memory_;
  std::vector<std::unique_ptr<FlatShard>> flats_;
};

}  // namespace ddp
