// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/net_path.h"

#include <algorithm>
#include <iterator>

namespace ddp::check {
namespace {

bool has(const NetPath& path, const Hello& task) {
  switch (path.stage) {
    case TransportKind::verbs:
      return task.rdma_measurable && path.ports.contains(task.node);
    case TransportKind::nccl:
      return task.gpus > 0 && !task.nccl_version.empty();
    default:
      return path.rail.empty() || task.rails.contains(path.rail);
  }
}

// The rate by which nodes are compared.
std::optional<double> rate_on(const NetPath& path, const Hello& task) {
  const auto port = path.ports.find(task.node);
  if (port != path.ports.end()) return port->second.bytes_per_second;
  if (path.rail.empty()) return task.link_bytes_per_second;
  const auto rail = task.rails.find(path.rail);
  return rail == task.rails.end() ? std::nullopt : rail->second.bytes_per_second;
}

}  // namespace

std::vector<NodeEntry> nodes_with(const NetPath& path, const std::vector<NodeEntry>& nodes,
                                  const std::map<int, Hello>& present) {
  std::vector<NodeEntry> those;
  std::copy_if(nodes.begin(), nodes.end(), std::back_inserter(those),
               [&](const NodeEntry& node) { return has(path, present.at(node.ranks.front())); });
  return those;
}

std::string reason_for_no_pair(const std::vector<NodeEntry>& nodes) {
  return nodes.empty() ? "it can be measured on no node"
                       : "it can be measured only on " + nodes.front().name;
}

Classes classes_on(const NetPath& path, const std::vector<NodeEntry>& nodes,
                   const std::map<int, Hello>& present) {
  std::vector<std::optional<double>> rates;
  rates.reserve(nodes.size());
  for (const auto& node : nodes) rates.push_back(rate_on(path, present.at(node.ranks.front())));
  return classes_by_rate(rates);
}

std::optional<double> link_rate_on(const NetPath& path, const Hello& task) {
  return path.stage == TransportKind::tcp ? rate_on(path, task) : std::nullopt;
}

}  // namespace ddp::check
