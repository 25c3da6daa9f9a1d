// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run divide among themselves: names, and what does not go together.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "ddp_runtime/comm/group.h"
#include "ddp_runtime/train/options.h"

namespace ddp::train {

// Throws UsageError listing the valid values.
Shard parse_shard(const std::string& name);
std::string shard_mode_name(Shard shard);

// Collective if the options ask for shards. Returns the optimizer itself, or one that divides it.
// Throws UsageError, on all ranks, for options that do not go together with shards.
std::unique_ptr<torch::optim::Optimizer> shard_if_wanted(
    std::unique_ptr<torch::optim::Optimizer> optimizer, comm::Group& group, torch::Device device,
    const TrainOptions& options);

}  // namespace ddp::train
