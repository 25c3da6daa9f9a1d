// SPDX-License-Identifier: Apache-2.0
// Which RDMA ports of a node jobs use, and which may be compared with each other.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// True if the port's kind is known well enough to call a difference a fault: its board is known, or
// it is near a GPU.
bool kind_is_certain(const fabric::Node& node, std::size_t port);

// True if a port of the compute fabric is certainly of this port's kind: the port is one of the
// rails, whether or not it works.
bool is_rail(const fabric::Node& node, const fabric::ComputePorts& compute, std::size_t port);

// True if jobs on the node use RDMA: over the ports of the compute fabric, or over EFA.
bool uses_rdma(const fabric::Node& node);

// Returns "0000:29:00" of a port on the bus address 0000:29:00.1: the card that the port is on.
std::string card_of(const fabric::InfinibandPort& port);

// Returns "left out by the plan: far from every GPU"; empty if the port is not left out.
std::string left_out_text(const fabric::ComputePorts& compute, std::size_t port);

// Returns the active ports that should have this port's rate, including it. Empty if there is
// nothing to compare: the port is left out of the compute fabric, and not because of its rate.
std::vector<std::size_t> ports_of_its_kind(const fabric::Node& node,
                                           const fabric::ComputePorts& compute, std::size_t port);

}  // namespace ddp::check
