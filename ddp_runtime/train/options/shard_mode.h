// SPDX-License-Identifier: Apache-2.0
// What the ranks of a run divide among themselves: names, and what does not go together.
#pragma once

#include <torch/torch.h>

#include <memory>
#include <string>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/distributed_data_parallel.h"
#include "ddp_runtime/train/options/options.h"

namespace ddp::train {

// Throws UsageError listing the valid values.
Shard parse_shard(const std::string& name);
std::string shard_mode_name(Shard shard);

// Collective. The replica that the options ask for, whose own options are `parallel`.
std::unique_ptr<DistributedDataParallel> make_replica(comm::Group& group, torch::nn::Module& module,
                                                      const TrainOptions& options,
                                                      const DataParallelOptions& parallel);

// Collective if the options ask for shards. Returns the optimizer itself, or one that divides it.
// `replica` is the result of make_replica(), and must outlive the result. Throws UsageError, on all
// ranks, for options that do not go together with shards.
std::unique_ptr<torch::optim::Optimizer> shard_if_wanted(
    std::unique_ptr<torch::optim::Optimizer> optimizer, DistributedDataParallel& replica,
    const TrainOptions& options);

}  // namespace ddp::train
