// SPDX-License-Identifier: Apache-2.0
// The interfaces that may carry a job's traffic if no route decides.
#pragma once

#include <string>
#include <string_view>

#include "spank_plugin/fabric/node/node.h"

namespace ddp::fabric {

// Returns true if the interface is running, uses a wire (Ethernet, IPoIB, a bond or VLAN of them),
// and does not have a name that container engines, virtual machines or VPNs use on a host. A member
// of a bond or bridge does not have its own addresses and is not a candidate.
bool is_candidate(const NetworkInterface& interface) noexcept;

// Returns true if the interface is up and is neither a candidate nor the loopback. A library must
// not choose it by itself, because its addresses are unknown to other nodes or identical on all of
// them. An interface without a link counts too, because Open MPI chooses docker0 even if no
// container runs.
bool is_trap(const NetworkInterface& interface) noexcept;

// Returns what keeps other nodes from reaching this one through the interface, as "is not running
// here"; empty if it is usable.
std::string what_is_wrong_with(const Node& node, std::string_view interface);

}  // namespace ddp::fabric
