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
// Throws LaunchError if the leader cannot be derived.
NodeFacts gather_node_facts(const StepFacts& step, const Settings& settings,
                            const Inherited& inherited, bool may_choose_port);

// For the task of rank 0: throws LaunchError if MASTER_PORT was derived and another program holds
// it, naming the holder. All other ranks have the same port by now, so it cannot be changed.
void require_free_master_port(const Plan& plan, const Settings& settings,
                              const Inherited& inherited);

}  // namespace ddp::launch
