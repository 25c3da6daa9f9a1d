// SPDX-License-Identifier: Apache-2.0
// The PET_* variables of Mode::torchrun, in which the single task of each node is torchrun, which
// starts the ranks. torchrun reads these variables instead of options on its command line.
#pragma once

#include "spank_plugin/launch/plan/plan_builder.h"
#include "spank_plugin/launch/plan/rank_order.h"

namespace ddp::launch {

// Returns Mode::rank or Mode::torchrun. Throws LaunchError if torchrun was requested and the step
// has several tasks on a node.
Mode choose_mode(const StepFacts& step, const Settings& settings);

// Adds the variables. MASTER_ADDR and MASTER_PORT must already be in the plan.
void add_torchrun(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                  const Settings& settings);

// Adds torchrun's variables to those of Mode::rank, for steps with one task per node. If the task's
// command starts torchrun, that torchrun becomes an agent of this step instead of a separate
// training run on each node. No other program reads these variables.
void add_torchrun_beside_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                               const Settings& settings);

// Returns the number of workers that torchrun will start on this node; nullopt if the plan does not
// determine it.
std::optional<std::uint32_t> planned_workers(const PlanBuilder& plan);

}  // namespace ddp::launch
