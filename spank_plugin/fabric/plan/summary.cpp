// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/plan/summary.h"

#include <array>
#include <charconv>
#include <utility>

#include "base/text.h"
#include "spank_plugin/fabric/files/text.h"

namespace ddp::fabric {
namespace {

std::string to_text(double number) {
  std::array<char, 32> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), number, std::chars_format::general, 6);
  return {text.data(), end.ptr};
}

// Returns "mlx5" from the driver mlx5_core, else from the device mlx5_0.
std::string family_of(const InfinibandPort& port) {
  const std::string& name = is_device_name(port.driver) ? port.driver : port.device;
  return name.substr(0, name.find('_'));
}

std::string link_layer_name(const InfinibandPort& port) {
  if (port.link_layer == "Ethernet") return "RoCE";
  if (port.link_layer == "Unspecified") return port.driver == "efa" ? "EFA" : "RDMA";
  return port.link_layer;
}

std::string kind_of(const InfinibandPort& port) {
  const std::string rate = port.rate_gbps ? to_text(*port.rate_gbps) + " Gb/s " : "";
  return family_of(port) + " " + rate + link_layer_name(port);
}

// Returns, for example, "8 x mlx5 400 Gb/s InfiniBand, 1 x ..".
std::string describe(const std::vector<const InfinibandPort*>& ports) {
  std::vector<std::pair<std::string, int>> kinds;
  for (const InfinibandPort* port : ports) {
    const std::string kind = kind_of(*port);
    std::size_t i = 0;
    while (i < kinds.size() && kinds[i].first != kind) ++i;
    if (i == kinds.size()) kinds.emplace_back(kind, 0);
    ++kinds[i].second;
  }
  std::vector<std::string> texts;
  texts.reserve(kinds.size());
  for (const auto& [kind, count] : kinds) texts.push_back(std::to_string(count) + " x " + kind);
  return join(texts, ", ");
}

std::string leader_text(const Node& node, const std::string& interface, bool is_one_node) {
  if (is_one_node) return "one node";
  if (interface.empty()) return "route to the leader unknown";
  std::string text = "leader through " + interface;
  const NetworkInterface* found = node.interface(interface);
  if (found != nullptr && found->kind == InterfaceKind::loopback) {
    return "leader by routes from an address on lo";
  }
  if (found != nullptr && found->speed_mbps && has_wire_speed(found->kind)) {
    text += " (" + to_text(*found->speed_mbps / 1000.0) + " Gb/s)";
  }
  return text;
}

}  // namespace

std::string summarize(const Node& node, const std::vector<std::size_t>& ports,
                      const std::string& interface, bool is_one_node) {
  std::vector<const InfinibandPort*> used;
  used.reserve(node.ports.size());
  for (const std::size_t port : ports) used.push_back(&node.ports[port]);
  // EFA and similar: NCCL reaches them only through plugins.
  for (const auto& port : node.ports) {
    if (ports.empty() && port.active() && port.link_layer == "Unspecified") used.push_back(&port);
  }
  std::string fabric = used.empty() ? "no RDMA" : describe(used);
  if (used.empty() && !node.slingshot.empty()) {
    fabric = std::to_string(node.slingshot.size()) + " x cxi Slingshot";
  }
  return "fabric: " + fabric + ", " + leader_text(node, interface, is_one_node);
}

}  // namespace ddp::fabric
