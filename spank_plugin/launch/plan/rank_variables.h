// SPDX-License-Identifier: Apache-2.0
// The variables of Mode::rank, in which every task is one rank: PyTorch's variables, which other
// frameworks have adopted, and the rendezvous of JAX and TensorFlow.
#pragma once

#include "spank_plugin/launch/plan/plan_builder.h"
#include "spank_plugin/launch/plan/rank_order.h"

namespace ddp::launch {

// Adds RANK, WORLD_SIZE, LOCAL_RANK, ..., and the task's GPU. `numbers` has the value of RANK.
void add_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
               const Settings& settings);

// Adds JAX_COORDINATOR_ADDRESS and related variables. MASTER_ADDR and MASTER_PORT must already be
// in the plan.
void add_jax(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
             const Settings& settings);

// Adds TF_CONFIG with all workers in rank order. Throws LaunchError if a task cannot know the node
// of every rank, if there are not enough ports, or if the value would be too long for a variable.
void add_tf_config(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                   const Settings& settings);

}  // namespace ddp::launch
