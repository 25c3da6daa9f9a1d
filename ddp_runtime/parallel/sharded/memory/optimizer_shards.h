// SPDX-License-Identifier: Apache-2.0
// The parts of the parameters of an optimizer, for gradients that every rank has: stage 1 of ZeRO.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/sharded/memory/parameter_shards.h"

namespace ddp {

class OptimizerShards final : public ParameterShards {
 public:
  // Collective. Moves the optimizer's parameters to memory of the group. Throws as ShardedOptimizer
  // does. `group` must outlive this object.
  OptimizerShards(comm::Group& group, const torch::optim::Optimizer& optimizer);

  const ShardGroups& groups() const noexcept override { return groups_; }
  const std::vector<std::unique_ptr<FlatShard>>& flats() const noexcept override { return flats_; }
  torch::Tensor gradient_of(std::size_t flat, const FlatShard::Part& part) const override;
  bool has_gradient(PlaceInFlat place) const override;
  void begin_update() override {}
  void publish() override;

 private:
  ShardGroups groups_;
  std::vector<std::unique_ptr<FlatShard>> flats_;
};

}  // namespace ddp
