// SPDX-License-Identifier: Apache-2.0
// Mode::torchrun, in which the single task of each node is torchrun, which starts the ranks: the
// options that it would need on its command line, as the PET_* variables that it reads instead.
#pragma once

#include "spank_plugin/launch/plan_builder.h"
#include "spank_plugin/launch/rank_order.h"

namespace ddp::launch {

// Mode::rank or Mode::torchrun. Throws LaunchError if torchrun was requested and the step has
// several tasks on a node.
Mode choose_mode(const StepFacts& step, const Settings& settings);

// MASTER_ADDR and MASTER_PORT must already be in the plan.
void add_torchrun(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                  const Settings& settings);

// For Mode::rank with one task per node: torchrun's variables in addition to the ranks. If the
// task's command runs torchrun in the end, that becomes an agent of this step instead of a separate
// training run on each node; no other program reads these variables.
void add_torchrun_beside_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                               const Settings& settings);

// How many workers torchrun will start on this node; nullopt if the plan does not determine it.
std::optional<std::uint32_t> planned_workers(const PlanBuilder& plan);

}  // namespace ddp::launch
