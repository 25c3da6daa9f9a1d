// SPDX-License-Identifier: Apache-2.0
// Nodes as values, for tests of rules that do not need files.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "spank_plugin/fabric/plan.h"

namespace ddp::test {

// A running physical interface with an address ("10.0.0.1/24"; empty: none), appended to the node.
fabric::NetworkInterface& add_interface(fabric::Node& node, const std::string& name,
                                        const std::string& address = "");

// An active port, with its place in the PCI tree, appended to the node.
fabric::InfinibandPort& add_port(fabric::Node& node, const std::string& device,
                                 const std::string& link_layer, double rate,
                                 const fabric::PciPath& path = {});

void add_gpu(fabric::Node& node, const fabric::PciPath& path, int numa_node = 0);

void add_route(fabric::Node& node, const std::string& interface, const std::string& network);

// "{index, type, address, interface}" of a RoCE port.
void add_gid(fabric::InfinibandPort& port, int index, const std::string& address,
             const std::string& type = "RoCE v2", const std::string& interface = "");

// A user's environment.
fabric::UserVariables variables(std::map<std::string, std::string> values);

// A step of two nodes whose leader has this address.
fabric::Request two_nodes(const std::string& leader);

// The value that the plan sets; "" if it sets none or keeps a user's value.
std::string value_set(const fabric::Plan& plan, const std::string& name);

}  // namespace ddp::test
