// SPDX-License-Identifier: Apache-2.0
// The units of a module in flat memory, and the order in which their gradients are reduced.
#pragma once

#include <torch/torch.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/group.h"
#include "ddp_runtime/parallel/buckets/bucket_plan.h"
#include "ddp_runtime/parallel/replica/replica.h"
#include "ddp_runtime/parallel/sharded/memory/flat_shard.h"
#include "ddp_runtime/parallel/sharded/plan/shard_options.h"
#include "ddp_runtime/parallel/sharded/plan/unit_order.h"
#include "ddp_runtime/torch_compat.h"

namespace ddp {

struct ShardedUnits {
  static constexpr std::size_t kRoot = 0;

  struct Unit {
    std::string name;
    const torch::nn::Module* module = nullptr;
    std::vector<std::size_t> flats;
    bool has_frozen_flat = false;
    bool has_frozen = false;  // in this step
    int entered = 0;
  };
  struct Trained {  // a parameter that requires a gradient
    NamedTensor parameter;
    std::size_t unit = 0;
    std::size_t flat = 0;
    torch_compat::NodePointer accumulator;
    std::uintptr_t key = 0;  // of the hook
  };

  std::vector<std::unique_ptr<FlatShard>> flats = {};
  std::vector<Unit> all = {};
  std::vector<Trained> trained = {};
  std::vector<std::size_t> first_trained_of = {};  // by flat: those of its arrays are consecutive

  // Whether the flat has gradients.
  bool is_trained(std::size_t flat) const;
  // "parameter 'fc.weight'".
  std::string name_of(const torch::Tensor& parameter) const;
};

// How ranks keep the parameters of the module.
FlatShard::Kept kept_with(const ShardOptions& options, const torch::nn::Module& module);

// Collective over `group`, whose ranks divide. Moves the parameters to flat memory; `calls` is what
// unit_calls_of() returns for them.
ShardedUnits make_sharded_units(comm::Group& group, const torch::nn::Module& module,
                                const std::vector<NamedTensor>& parameters,
                                const ShardOptions& options, FlatShard::Kept kept,
                                UnitCalls* calls);

// Which trained parameters each reduction has, in the order of reductions: units are reduced in the
// opposite order of that in which they are called, the root last.
BucketPlan plan_reductions(const ShardedUnits& units, const UnitOrder::Units& calls);

}  // namespace ddp
