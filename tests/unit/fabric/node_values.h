// SPDX-License-Identifier: Apache-2.0
// Nodes as values, for tests of rules that do not need files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spank_plugin/fabric/plan/plan.h"

namespace ddp::test {

// Appends a running physical interface to the node, with an address ("10.0.0.1/24"; empty for
// none).
fabric::NetworkInterface& add_interface(fabric::Node& node, const std::string& name,
                                        const std::string& address = "");

// Appends an active port to the node, with its position in the PCI tree.
fabric::InfinibandPort& add_port(fabric::Node& node, const std::string& device,
                                 const std::string& link_layer, double rate,
                                 const fabric::PciPath& path = {});

void add_gpu(fabric::Node& node, const fabric::PciPath& path, int numa_node = 0);

void add_route(fabric::Node& node, const std::string& interface, const std::string& network);

// Appends a GID to a RoCE port.
void add_gid(fabric::InfinibandPort& port, int index, const std::string& address,
             const std::string& type = "RoCE v2", const std::string& interface = "");

// Returns a user's environment.
fabric::UserVariables variables(std::map<std::string, std::string> values);

// Returns a step of two nodes whose leader has this address.
fabric::Request two_nodes(const std::string& leader);

// Returns the value that the plan sets; "" if it sets none or keeps a user's value.
std::string value_set(const fabric::Plan& plan, const std::string& name);

}  // namespace ddp::test
