#pragma once
// What a plan needs to know of the node it is made on: does the leader's name lead anywhere here,
// and are the ports free.

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/marker.h"
#include "spank_plugin/launch/plan.h"
#include "spank_plugin/launch/settings.h"

namespace ddp::launch {

// Looks only at what will be derived: values that were given are taken as they are.
// `may_choose_port`: the caller decides for all tasks of the node at once, before any of them has
// started; then a step of one node may take the next port if its own is taken.
// Throws UsageError if the leader cannot be derived.
NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port);

// For a task with its plan: are the ports that its program will listen on free? All other ranks
// have the same ports by now, so that none can be changed; one that somebody gave, or that the node
// chose, is not looked at. Throws LaunchError, naming the holder, if MASTER_PORT is taken where
// rank 0 runs, or the task's own port of TF_CONFIG. For JAX's port, which few programs use, a note
// is added.
void check_planned_ports(Plan& plan, const Facts& facts, const Settings& settings,
                         const Inherited& inherited);

}  // namespace ddp::launch
