// Which interfaces may carry a job's traffic, where no route tells.
#pragma once

#include "spank_plugin/fabric/network_interface.h"

namespace ddp::fabric {

// Running, on a wire (Ethernet, IPoIB, a bond or VLAN of them), and not by its name one of those
// that container engines, virtual machines and VPNs leave on a host. A port that is part of a bond
// or bridge has no addresses of its own and is none.
bool is_candidate(const NetworkInterface& interface) noexcept;

// Switched on, and neither a candidate nor the loopback: what a library must not choose by itself,
// since its addresses are unknown to other nodes, or the same on each. A link is not needed: Open
// MPI takes a docker0 without containers, too.
bool is_trap(const NetworkInterface& interface) noexcept;

}  // namespace ddp::fabric
