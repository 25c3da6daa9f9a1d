// SPDX-License-Identifier: Apache-2.0
// The nodes of each switch, as one line of text that srun passes to the nodes: for each leaf switch
// its path from the top and its nodes, e.g. "top.s1=node[1-2];top.s2=node[3-4]". A task knows only
// its own node's place (SLURM_TOPOLOGY_ADDR), but ordering the nodes needs the places of all.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::launch {

// Below the kernel's limit for one environment variable.
inline constexpr std::size_t kMaxSwitchMap = 100'000;

// Parses the output of `scontrol show topology`: one "SwitchName=... Level=... Nodes=..." per line,
// with "Switches=..." for switches above the leaves, or "BlockName=... Nodes=..." of
// topology/block, where a block is one NVLink domain or one switch. Returns an empty map if no
// switch has nodes. Throws UsageError if the text has another format or the map would be longer
// than kMaxSwitchMap.
std::string make_switch_map(std::string_view scontrol_output);

// Returns the path of each node's leaf switch, in the order of `nodes`; "" for a node without a
// switch. Throws UsageError for a text that make_switch_map does not write.
std::vector<std::string> switch_paths(std::string_view map, std::span<const std::string> nodes);

// Returns an order of the nodes, as indices, in which the nodes of one switch are adjacent at every
// level of the tree. A ring over them crosses each switch's uplink once in each direction, which is
// the minimum. The switches come in the order of their first node in the list, so the first node
// stays first.
std::vector<std::uint32_t> order_by_switch(std::span<const std::string> paths);

}  // namespace ddp::launch
