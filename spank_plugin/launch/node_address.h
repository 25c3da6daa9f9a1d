// SPDX-License-Identifier: Apache-2.0
// The address by which SLURM itself reaches a node (NodeAddr), for clusters whose name service does
// not know the nodes' names.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

struct NodeAddress {
  std::string node;
  std::string address;  // numeric, or another name

  bool operator==(const NodeAddress&) const = default;
};

// Returns the address in the output of `scontrol --oneliner show node NODE`; nullopt if the output
// is of another node or has no address other than the node's name, which is SLURM's default.
std::optional<NodeAddress> node_address_in(std::string_view scontrol_output, std::string_view node);

// "node1=10.0.0.1", by which srun tells the nodes. Returns nullopt for any other text.
std::string format_node_address(const NodeAddress& found);
std::optional<NodeAddress> parse_node_address(std::string_view text);

}  // namespace ddp::launch
