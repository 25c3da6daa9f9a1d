// SPDX-License-Identifier: Apache-2.0
// c10d::Reducer, the engine of Python's DistributedDataParallel, driven from C++: a comparison
// without the cost of Python. Built only if its headers and Gloo's are installed.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <vector>

#include "ddp_runtime/comm/group/group.h"

namespace ddp::bench {

class ReducerPeer {
 public:
  virtual ~ReducerPeer() = default;
  // Call before_forward() in every step before the model's forward, and before_backward() between
  // forward and backward. When backward returns, the gradients are averaged.
  virtual void before_forward() = 0;
  virtual void before_backward() = 0;
};

// Collective. Uses the defaults of Python's DistributedDataParallel. Returns nullptr if not built
// in.
std::unique_ptr<ReducerPeer> make_reducer_peer(comm::Group& group,
                                               const std::vector<torch::Tensor>& parameters);

}  // namespace ddp::bench
