// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/numa.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "base/text.h"
#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::fabric {
namespace {

constexpr std::size_t kMaxNumaNodes = 256;

// The directory has about a dozen other files besides the nodes.
std::vector<int> list_numa_nodes(const std::filesystem::path& directory) {
  constexpr std::size_t kMaxNames = kMaxNumaNodes + 64;
  constexpr std::string_view kPrefix = "node";
  std::vector<int> nodes;
  for (const auto& name : list_names(directory, kMaxNames)) {
    if (!name.starts_with(kPrefix) || name.size() > kPrefix.size() + 4) continue;
    const auto number = parse_decimal(std::string_view(name).substr(kPrefix.size()));
    if (number && nodes.size() < kMaxNumaNodes) nodes.push_back(static_cast<int>(*number));
  }
  std::sort(nodes.begin(), nodes.end());
  return nodes;
}

}  // namespace

std::optional<int> NumaDistances::between(std::optional<int> from, std::optional<int> to) const {
  constexpr int kWithin = 10;
  constexpr int kBetween = 20;
  if (!from || !to) return std::nullopt;
  const auto found = table_.find({*from, *to});
  if (found != table_.end()) return found->second;
  return *from == *to ? kWithin : kBetween;
}

NumaDistances read_numa_distances(const std::filesystem::path& sys) {
  const auto directory = sys / "devices/system/node";
  NumaDistances distances;
  const auto nodes = list_numa_nodes(directory);
  for (const int from : nodes) {
    const auto line = read_attribute(directory / ("node" + std::to_string(from)) / "distance");
    if (!line) continue;
    // The line has one column for each online node, in numeric order.
    const auto columns = words_of(*line, kMaxNumaNodes + 1);
    if (columns.size() != nodes.size()) continue;
    for (std::size_t i = 0; i < nodes.size(); ++i) {
      const auto distance = parse_decimal(columns[i]);
      if (distance && *distance < 65'536) {
        distances.set(from, nodes[i], static_cast<int>(*distance));
      }
    }
  }
  return distances;
}

}  // namespace ddp::fabric
