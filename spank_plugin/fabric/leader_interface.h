// SPDX-License-Identifier: Apache-2.0
// The interface of this node that reaches the leader, on which all socket variables are based.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/plan.h"

namespace ddp::fabric {

struct LeaderInterface {
  std::string name;
  std::string rule;    // completes "eth0 .."
  std::string source;  // the file, table or option that decided it
};

// Returns nullopt if there is no information. Adds a sentence to `warnings` if the site's choice is
// impossible or if the route to the leader is unsuitable for a job's traffic.
std::optional<LeaderInterface> find_leader_interface(const Node& node, const Request& request,
                                                     std::vector<std::string>& warnings);

}  // namespace ddp::fabric
