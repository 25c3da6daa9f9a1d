// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/comm/node/node_map.h"

#include <algorithm>
#include <unordered_map>

namespace ddp::comm {

NodeMap map_nodes(std::span<const std::string> keys, int rank) {
  NodeMap map;
  std::unordered_map<std::string, std::size_t> index_of;
  for (std::size_t r = 0; r < keys.size(); ++r) {
    const auto [entry, is_new] = index_of.emplace(keys[r], map.nodes.size());
    if (is_new) map.nodes.emplace_back();
    auto& node = map.nodes[entry->second];
    if (static_cast<int>(r) == rank) {
      map.mine = entry->second;
      map.place = node.size();
    }
    node.push_back(static_cast<int>(r));
  }
  map.lanes =
      std::min_element(map.nodes.begin(), map.nodes.end(), [](const auto& a, const auto& b) {
        return a.size() < b.size();
      })->size();
  int next = 0;
  map.in_rank_order = true;
  for (const auto& node : map.nodes) {
    for (const int r : node) map.in_rank_order &= r == next++;
  }
  return map;
}

Subgroup NodeMap::lane_subgroup() const {
  Subgroup group;
  group.me = static_cast<int>(mine);
  for (const auto& node : nodes) group.ranks.push_back(node[place]);
  return group;
}

}  // namespace ddp::comm
