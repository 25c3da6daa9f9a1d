#pragma once
// Mode::torchrun, in which the one task of each node is torchrun, which starts the ranks: the
// options that it would need on its command line, as the PET_* variables that it reads instead.

#include "spank_plugin/launch/plan_builder.h"
#include "spank_plugin/launch/rank_order.h"

namespace ddp::launch {

// rank or torchrun. Throws LaunchError if torchrun was asked for and the step has several tasks on
// a node.
Mode choose_mode(const StepFacts& step, const Settings& settings);

// MASTER_ADDR and MASTER_PORT must be in the plan already.
void add_torchrun(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                  const Settings& settings);

// For Mode::rank with one task per node: what torchrun needs, beside the ranks. Whatever the task
// starts in the end, a torchrun in it then is an agent of this step instead of a training of its
// own on each node; nobody else reads these variables.
void add_torchrun_beside_ranks(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                               const Settings& settings);

// How many workers torchrun will start on this node; nothing if the plan does not tell.
std::optional<std::uint32_t> planned_workers(const PlanBuilder& plan);

}  // namespace ddp::launch
