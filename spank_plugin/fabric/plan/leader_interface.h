// SPDX-License-Identifier: Apache-2.0
// The interface of this node that reaches the leader, on which all socket variables are based.
#pragma once

#include <optional>
#include <string>

#include "spank_plugin/fabric/plan/plan_builder.h"

namespace ddp::fabric {

struct LeaderInterface {
  std::string name;
  std::string rule;    // completes "eth0 .."
  std::string source;  // the file, table or option that decided it
};

// Returns the interface that has the address by which the leader and this node reach each other. It
// may be lo, or a dummy interface, if packets leave through links without addresses. Returns
// nullopt if there is no information. Adds a warning to the plan if there is none, if the site's
// choice is impossible, or if the route to the leader is unsuitable for a job's traffic.
std::optional<LeaderInterface> find_leader_interface(const Node& node, const Request& request,
                                                     PlanBuilder& builder);

}  // namespace ddp::fabric
