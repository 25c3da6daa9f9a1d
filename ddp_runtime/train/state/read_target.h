// SPDX-License-Identifier: Apache-2.0
// Where the arrays of a checkpoint are read, which is host memory.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <vector>

#include "ddp_runtime/train/state/state_array.h"
#include "hdf5_ckpt/read/checkpoint.h"

namespace ddp::train {

// As libtorch writes shapes.
std::vector<std::int64_t> shape_of(const ckpt::StoredArray& array);

struct ReadTarget {
  StateArray array;
  torch::Tensor destination = {};  // of a copy afterwards; undefined: the array itself
};

// The array itself if it is in host memory, of this type and contiguous; otherwise beside it.
ReadTarget host_target(StateArray array, torch::ScalarType type);
// In memory of this type beside the array, which stays as it is if the checkpoint turns out to be
// damaged. A scalar that another rank has is read, and not kept.
ReadTarget target_beside(StateArray array, torch::ScalarType type);

// Throws as Checkpoint::read_into does.
void read_into(const std::vector<ReadTarget>& targets, const ckpt::Checkpoint& checkpoint,
               ckpt::Match match);

}  // namespace ddp::train
