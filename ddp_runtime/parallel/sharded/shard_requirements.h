// SPDX-License-Identifier: Apache-2.0
// What can be divided by a ShardedDataParallel.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"

namespace ddp {

// Collective. Throws UsageError, the same on all ranks, if they would divide in different ways.
void require_same_options(comm::Group& group, const ShardOptions& options);

// Collective. Throws UsageError, on all ranks, if they cannot have memory in common.
void require_one_machine(comm::Group& group);

// Throws UsageError for options that do not go together, and for parameters of the module that
// cannot be divided.
void require_shardable(const torch::nn::Module& module, const std::vector<NamedTensor>& parameters,
                       const ShardOptions& options);

// "parameters", as on the command line.
const char* name_of_shard(Shard shard);

}  // namespace ddp
