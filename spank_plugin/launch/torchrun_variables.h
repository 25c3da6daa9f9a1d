#pragma once
// Mode::torchrun, in which the one task of each node is torchrun, which starts the ranks: the
// options that it would need on its command line, as the PET_* variables that it reads instead.

#include <span>
#include <string_view>

#include "spank_plugin/launch/plan_builder.h"
#include "spank_plugin/launch/rank_order.h"

namespace ddp::launch {

// True for `torchrun ...` and `python ... -m torch.distributed.run ...`, by whatever path.
bool is_torchrun(std::span<const std::string_view> command) noexcept;

// rank or torchrun. Throws LaunchError if torchrun was asked for and the step has several tasks on
// a node.
Mode choose_mode(const StepFacts& step, const Settings& settings);

// MASTER_ADDR and MASTER_PORT must be in the plan already.
void add_torchrun(PlanBuilder& plan, const Facts& facts, const RankNumbers& numbers,
                  const Settings& settings);

// How many workers torchrun will start on this node; nothing if the plan does not tell.
std::optional<std::uint32_t> planned_workers(const PlanBuilder& plan);

}  // namespace ddp::launch
