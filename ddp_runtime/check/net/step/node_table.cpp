// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/step/node_table.h"

#include <algorithm>

namespace ddp::check {

std::vector<NodeEntry> node_table(const JobStep& step, const std::map<int, Hello>& present) {
  std::vector<NodeEntry> nodes;
  std::map<std::string, std::size_t> places;
  const auto entry_of = [&](const std::string& name) -> NodeEntry& {
    const auto [place, is_new] = places.emplace(name, nodes.size());
    if (is_new) nodes.push_back({name, 0, {}});
    return nodes[place->second];
  };
  for (const auto& [name, tasks] : step.nodes) entry_of(name).expected_tasks += tasks;
  for (const auto& [rank, hello] : present) entry_of(hello.node).ranks.push_back(rank);
  return nodes;
}

std::vector<std::string> names_of(const std::vector<NodeEntry>& nodes) {
  std::vector<std::string> names;
  names.reserve(nodes.size());
  for (const auto& node : nodes) names.push_back(node.name);
  return names;
}

}  // namespace ddp::check
