// SPDX-License-Identifier: Apache-2.0
// The nodes' addresses (NodeAddr), by the word of slurmctld.
#pragma once

#include <string>
#include <string_view>

namespace ddp::launch {

// Runs `scontrol show node` for a compressed list of nodes, for at most 5 s, and returns the text
// of node_address.h; for a long list, only of its first node. Empty if slurmctld does not answer.
// To be called once for a step, never on each node: a large step would ask slurmctld thousands of
// times at once. Throws UsageError if the list cannot be expanded.
std::string query_node_addresses(std::string_view node_list);

}  // namespace ddp::launch
