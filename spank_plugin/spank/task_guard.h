// SPDX-License-Identifier: Apache-2.0
// Under --ddp=watch each task of slurmstepd becomes a guard, and the user's program its child.
#pragma once

#include <optional>
#include <string_view>

#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/spank/plugin_state.h"

namespace ddp::spank {

// In slurmstepd, once per node. Returns nullopt, with a line for the user, if ddp-guard is missing:
// a program without a guard is better than none.
// `key`: the step's, see step_key_digits().
std::optional<GuardFacts> prepare_guard(const launch::Settings& settings, guard::HubPlace hub,
                                        std::string_view key);

// In a task, as its user. Returns true in a child of the task, which then becomes the user's
// program; the task itself becomes ddp-guard. Returns false in the task itself, with a line for the
// user, if the user has no process left.
bool put_guard_before_task(const GuardFacts& facts, const launch::Plan& plan);

}  // namespace ddp::spank
