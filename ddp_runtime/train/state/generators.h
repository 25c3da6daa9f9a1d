// SPDX-License-Identifier: Apache-2.0
// The random number generators of all ranks in a checkpoint: rng/rank-<r>/cpu and /cuda.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/train/state/read_target.h"
#include "ddp_runtime/train/state/state_array.h"

namespace ddp::train {

class Generators {
 public:
  // Those of the host and of the device of `module`. `group` must outlive this object.
  Generators(comm::Group& group, const torch::nn::Module& module);

  // From now on, generators stay as they are.
  void leave_alone() { devices_.clear(); }
  // Collective. Adds those of all ranks, the same on every rank.
  void collect(std::vector<StateArray>& arrays) const;
  // On rank 0: where the checkpoint's are read to, until distribute().
  void add_targets(const ckpt::Checkpoint& checkpoint, std::vector<ReadTarget>& targets);
  // Collective: each rank takes its own. Those that are not in the checkpoint are seeded.
  void distribute(std::uint64_t seed);

 private:
  void restore(torch::Device device, torch::Tensor loaded, std::uint64_t seed) const;

  comm::Group& group_;
  std::vector<torch::Device> devices_;  // empty: generators stay as they are
  std::vector<torch::Tensor> loaded_;   // on rank 0, for each device: [ranks, bytes]
};

}  // namespace ddp::train
