// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/net_state.h"

#include <algorithm>
#include <iterator>

namespace ddp::check {

std::vector<NodeEntry> answering_nodes(const NetState& state) {
  std::vector<NodeEntry> nodes;
  std::copy_if(state.nodes.begin(), state.nodes.end(), std::back_inserter(nodes),
               [&state](const NodeEntry& node) {
                 return !node.ranks.empty() && state.leader.reachable(node.ranks.front());
               });
  return nodes;
}

}  // namespace ddp::check
