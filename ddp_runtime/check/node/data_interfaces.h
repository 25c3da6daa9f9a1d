// SPDX-License-Identifier: Apache-2.0
// The interfaces of a node that carry the data of a job.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "spank_plugin/fabric/choice/compute_ports.h"

namespace ddp::check {

// True for a physical interface, which has a link of its own.
bool is_on_a_wire(const fabric::NetworkInterface& interface);

// True if the interface is part of a bond or bridge, or if a network leads through it. The kernel
// keeps the routes of an interface that loses its link.
bool is_in_use(const fabric::Node& node, const fabric::NetworkInterface& interface);

// True if the interface belongs to a RoCE port of the compute fabric, or to one of the same kind
// that does not work.
bool is_of_a_rail(const fabric::Node& node, const fabric::ComputePorts& compute,
                  const fabric::NetworkInterface& interface);

// Returns the names of running physical interfaces, those below a named bond or VLAN included:
//
// 1. the named ones, if any is named;
// 2. otherwise those of the compute fabric's RDMA ports (of RoCE, or IP over InfiniBand);
// 3. otherwise the fastest and others with at least half its speed; all if no speed is known.
std::set<std::string> find_data_interfaces(const fabric::Node& node,
                                           const fabric::ComputePorts& compute,
                                           const std::vector<std::string>& named);

}  // namespace ddp::check
