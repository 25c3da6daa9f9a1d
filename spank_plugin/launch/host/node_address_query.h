// SPDX-License-Identifier: Apache-2.0
// A node's NodeAddr, by the word of slurmctld.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/launch/facts.h"
#include "spank_plugin/launch/node_address.h"

namespace ddp::launch {

// Runs `scontrol show node LEADER`, for at most 10 s, unless the name service of this host knows
// the names of the step's nodes: it looks up one that is not this host's own, since a host may know
// its own name from another source. Returns nullopt if the name is known, or if slurmctld does not
// answer or has no other address. To be called once for a step, never on each node: a large step
// would ask slurmctld thousands of times at once.
std::optional<NodeAddress> query_leader_address(const StepFacts& step, const std::string& leader);

}  // namespace ddp::launch
