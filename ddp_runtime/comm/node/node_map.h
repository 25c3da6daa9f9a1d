// SPDX-License-Identifier: Apache-2.0
// Determines which ranks share a machine. Pure.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "ddp_runtime/comm/group/subgroup.h"

namespace ddp::comm {

struct NodeMap {
  // Ranks of each node, ascending; nodes in the order of their first rank.
  std::vector<std::vector<int>> nodes;
  std::size_t mine = 0;   // the index of this rank's node
  std::size_t place = 0;  // this rank's place in its node
  // Number of independent lanes of inter-node traffic, one per place: the number of ranks on the
  // smallest node.
  std::size_t lanes = 1;
  // Whether the concatenated rank lists of all nodes are in ascending order.
  bool in_rank_order = false;

  const std::vector<int>& local() const { return nodes[mine]; }
  bool shares_memory() const { return local().size() > 1; }
  // The ranks of all nodes at this rank's place.
  Subgroup lane_subgroup() const;
};

// `keys[r]` names the node of rank r.
NodeMap map_nodes(std::span<const std::string> keys, int rank);

}  // namespace ddp::comm
