// SPDX-License-Identifier: Apache-2.0
// The addresses by which SLURM itself reaches the nodes (NodeAddr), for clusters whose name service
// does not know the nodes' names. As one line of text that srun passes to the nodes:
// "node1=10.0.0.1,node2=10.0.0.2".
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

namespace ddp::launch {

// Below the kernel's limit for one environment variable.
inline constexpr std::size_t kMaxNodeAddresses = 100'000;

// Parses the output of `scontrol --oneliner show node`. Leaves out nodes whose address is only
// their name again, which is SLURM's default, and those beyond `max_text` characters.
std::string make_node_addresses(std::string_view scontrol_output,
                                std::size_t max_text = kMaxNodeAddresses);

// Returns the node's address, numeric or another name; nullopt if `addresses` has none.
std::optional<std::string> slurms_address_of(std::string_view node, std::string_view addresses);

// True if `address` is that of one of the nodes.
bool is_slurms_address(std::string_view address, std::string_view addresses);

}  // namespace ddp::launch
