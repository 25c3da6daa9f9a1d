// SPDX-License-Identifier: Apache-2.0
// The order in which each replica's gradients become ready, in a checkpoint: ddp/gradient_order,
// and ddp/gradient_order-<r> of replica number r, from 1. See
// DistributedDataParallel::gradient_order.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/state/read_target.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp {
class DistributedDataParallel;
}  // namespace ddp

namespace ddp::train {

class GradientOrders {
 public:
  // Of these, which may be none and may change, but not their number; must outlive this object.
  explicit GradientOrders(const std::vector<DistributedDataParallel*>& replicas);

  // Adds those that are known.
  void collect(std::vector<StateArray>& arrays) const;
  // Where the checkpoint's are read to, until take_loaded().
  void add_targets(const ckpt::Checkpoint& checkpoint, std::vector<ReadTarget>& targets);
  void take_loaded();
  // Collective: all ranks and their replicas take over rank 0's.
  void distribute(comm::Group& group);

 private:
  bool divides_gradients(std::size_t replica) const;

  const std::vector<DistributedDataParallel*>& replicas_;
  std::vector<std::vector<std::int64_t>> loaded_;  // by replica, at least one
  std::vector<torch::Tensor> targets_;
};

}  // namespace ddp::train
