// SPDX-License-Identifier: Apache-2.0
// Which interfaces may carry a job's traffic if no route decides it.
#pragma once

#include "spank_plugin/fabric/network_interface.h"

namespace ddp::fabric {

// True if the interface is running, on a wire (Ethernet, IPoIB, a bond or VLAN of them), and does
// not have a name that container engines, virtual machines and VPNs use on a host. A member of a
// bond or bridge does not have addresses of its own and is not a candidate.
bool is_candidate(const NetworkInterface& interface) noexcept;

// True if the interface is up and neither a candidate nor the loopback: a library must not choose
// it by itself, since its addresses are unknown to other nodes, or the same on each. It need not
// have a link: Open MPI chooses a docker0 without containers, too.
bool is_trap(const NetworkInterface& interface) noexcept;

}  // namespace ddp::fabric
