// The one decision behind all socket variables: which interface of this node reaches the leader.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "spank_plugin/fabric/plan.h"

namespace ddp::fabric {

struct LeaderInterface {
  std::string name;
  std::string rule;    // completes "eth0 .."
  std::string source;  // what said so
};

// Nothing if nothing tells. `warnings` gets a sentence where the site's choice is impossible or the
// way to the leader is none that a job's traffic should go.
std::optional<LeaderInterface> find_leader_interface(const Node& node, const Request& request,
                                                     std::vector<std::string>& warnings);

}  // namespace ddp::fabric
