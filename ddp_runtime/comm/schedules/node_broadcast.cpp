// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/schedules/node_broadcast.h"

#include <algorithm>

#include "ddp_runtime/comm/group/subgroup.h"

namespace ddp::comm::schedules {
namespace {

int place_of(const std::vector<int>& ranks, int rank) {
  return static_cast<int>(std::find(ranks.begin(), ranks.end(), rank) - ranks.begin());
}

}  // namespace

void node_broadcast(Link& link, const NodeMap& map, Buffer data, int root, const CostModel& model) {
  Subgroup leaders;
  int root_node = 0;
  for (std::size_t node = 0; node < map.nodes.size(); ++node) {
    const auto& ranks = map.nodes[node];
    const bool has_root = std::find(ranks.begin(), ranks.end(), root) != ranks.end();
    if (has_root) root_node = static_cast<int>(node);
    leaders.ranks.push_back(has_root ? root : ranks.front());
  }
  leaders.me = static_cast<int>(map.mine);
  const int leader = leaders.ranks[map.mine];
  const Subgroup local{map.local(), static_cast<int>(map.place)};
  if (link.rank() == leader) broadcast(link, leaders, data, root_node, model);
  broadcast(link, local, data, place_of(local.ranks, leader), model);
}

}  // namespace ddp::comm::schedules
