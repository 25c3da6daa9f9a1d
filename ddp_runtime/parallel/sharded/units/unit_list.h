// SPDX-License-Identifier: Apache-2.0
// The units of a module.
#pragma once

#include <torch/torch.h>

#include <vector>

#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/plan/unit_plan.h"

namespace ddp {

struct UnitOfModule {
  Unit unit;                                  // `parameters` are indices of those given
  const torch::nn::Module* module = nullptr;  // null if parameters are always whole
};

// The root is first. If parameters are always whole, units are parameters that are reduced
// together, and have no module and no name. Throws UsageError as plan_units() does.
std::vector<UnitOfModule> units_of(const torch::nn::Module& module,
                                   const std::vector<NamedTensor>& parameters,
                                   const ShardOptions& options, FlatShard::Kept kept);

}  // namespace ddp
