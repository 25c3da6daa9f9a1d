// SPDX-License-Identifier: Apache-2.0
// Gathers the facts that a plan needs about its node: whether the leader's name resolves here, and
// whether the ports are free.
#pragma once

#include "spank_plugin/launch/plan/plan.h"
#include "spank_plugin/launch/settings/settings.h"
#include "spank_plugin/launch/step/facts.h"
#include "spank_plugin/launch/step/marker.h"

namespace ddp::launch {

// Checks only values that will be derived; given values are used unchanged. `may_choose_port` is
// true if the caller decides for all tasks of the node together, before any of them has started: a
// step of one node may then use the next port if its own is taken. Throws UsageError if the leader
// cannot be derived.
NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port);

// Checks whether the ports that a task's program will listen on are free. All other ranks have the
// same ports by now, so none can be changed. Ports that the user gave or the node chose are not
// checked. Throws LaunchError, naming the holder, if MASTER_PORT is taken on the node of rank 0, or
// if the task's own port in TF_CONFIG is taken. For JAX's port, which few programs use, only a note
// is added.
void check_planned_ports(Plan& plan, const Facts& facts, const Settings& settings,
                         const Inherited& inherited);

}  // namespace ddp::launch
