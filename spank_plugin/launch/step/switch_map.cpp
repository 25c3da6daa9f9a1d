// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/launch/step/switch_map.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <unordered_map>

#include "base/hostlist.h"
#include "base/text.h"
#include "spank_plugin/launch/step/error.h"

namespace ddp::launch {
namespace {

constexpr std::size_t kMaxTopologyText = 8U << 20U;
constexpr int kMaxDepth = 16;

struct Switch {
  std::string name;
  std::string_view nodes;  // of a leaf switch
};

using Parents = std::unordered_map<std::string, std::string>;  // switch name -> its parent

std::string_view field(std::string_view line, std::string_view key) {
  for (const auto word : split(line, ' ')) {
    if (word.starts_with(key)) return word.substr(key.size());
  }
  return "";
}

// Returns "top.s1" for the leaf s1. Stops at kMaxDepth in a loop of switches, which real networks
// do not have.
std::string path_of(const std::string& leaf, const Parents& parents) {
  std::string path = leaf;
  std::string at = leaf;
  for (int depth = 0; depth < kMaxDepth; ++depth) {
    const auto parent = parents.find(at);
    if (parent == parents.end()) break;
    at = parent->second;
    path.insert(0, at + ".");
  }
  return path;
}

// True for a valid switch name or path in a map, which contains none of the separators.
bool is_path(std::string_view text) noexcept {
  return text.size() <= 1024 && text.find_first_of(";= ,[]") == std::string_view::npos;
}

}  // namespace

std::string make_switch_map(std::string_view scontrol_output) {
  if (scontrol_output.size() > kMaxTopologyText) throw LaunchError("the topology is too long");
  std::vector<Switch> leaves;
  Parents parents;
  for (const auto line : split(scontrol_output, '\n')) {
    std::string name(field(line, "SwitchName="));
    if (name.empty()) name = field(line, "BlockName=");
    if (name.empty() || !is_path(name)) continue;
    const auto below = field(line, "Switches=");
    const auto nodes = field(line, "Nodes=");
    if (!below.empty()) {
      for (auto& child : expand_hostlist(below)) parents[std::move(child)] = name;
    } else if (!nodes.empty()) {
      leaves.push_back({name, nodes});
    }
  }
  std::string map;
  for (const auto& leaf : leaves) {
    if (!map.empty()) map += ";";
    map += path_of(leaf.name, parents) + "=" + std::string(leaf.nodes);
    if (map.size() > kMaxSwitchMap) {
      throw LaunchError("the topology is longer than " + std::to_string(kMaxSwitchMap) +
                        " characters");
    }
  }
  return map;
}

std::vector<std::string> switch_paths(std::string_view map, std::span<const std::string> nodes) {
  if (map.size() > kMaxSwitchMap) throw LaunchError("the map of switches is too long");
  std::unordered_map<std::string_view, std::size_t> place;
  for (std::size_t i = 0; i < nodes.size(); ++i) place.emplace(nodes[i], i);
  std::vector<std::string> paths(nodes.size());
  for (const auto item : split(map, ';')) {
    const auto equals = item.find('=');
    if (equals == std::string_view::npos || !is_path(item.substr(0, equals))) {
      throw LaunchError("cannot read the map of switches at " + quote_for_display(item));
    }
    for (const auto& node : expand_hostlist(item.substr(equals + 1))) {
      const auto found = place.find(node);
      if (found != place.end()) paths[found->second] = item.substr(0, equals);
    }
  }
  return paths;
}

std::vector<std::uint32_t> order_by_switch(std::span<const std::string> paths) {
  // A node's key lists, for every switch above it from the top, the switch's first node in the
  // list. The keys of nodes under one switch begin with the same entries.
  std::unordered_map<std::string_view, std::uint32_t> first_node;
  std::vector<std::vector<std::uint32_t>> keys(paths.size());
  for (std::uint32_t i = 0; i < paths.size(); ++i) {
    const std::string_view path = paths[i];
    for (std::size_t end = path.find('.'); !path.empty(); end = path.find('.', end + 1)) {
      const auto prefix = path.substr(0, end);
      keys[i].push_back(first_node.emplace(prefix, i).first->second);
      if (end == std::string_view::npos) break;
    }
    keys[i].push_back(i);  // the node itself, which may be attached to a higher switch than others
  }
  std::vector<std::uint32_t> order(paths.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return keys[a] < keys[b]; });
  return order;
}

}  // namespace ddp::launch
