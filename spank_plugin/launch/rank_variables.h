#pragma once
// The variables of Mode::rank, in which every task is one rank: PyTorch's names, which others have
// taken over, and the rendezvous of JAX and TensorFlow.

#include "spank_plugin/launch/plan_builder.h"
#include "spank_plugin/launch/rank_order.h"

namespace ddp::launch {

// RANK, WORLD_SIZE, LOCAL_RANK, ...; and which GPU is the task's. `numbers` is what RANK will be.
void add_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
               const Settings& settings);

// JAX_COORDINATOR_ADDRESS and its like. MASTER_ADDR and MASTER_PORT must be in the plan already.
void add_jax(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
             const Settings& settings);

// TF_CONFIG with all workers in the order of their ranks. Throws LaunchError if a task cannot tell
// where every rank is, if there are not enough ports, or if it would be too long for a variable.
void add_tf_config(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                   const Settings& settings);

}  // namespace ddp::launch
