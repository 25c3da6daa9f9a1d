// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/choice/candidate.h"

#include <algorithm>
#include <array>

namespace ddp::fabric {
namespace {

bool has_name_of_a_virtual_network(std::string_view name) noexcept {
  constexpr std::array<std::string_view, 17> kPrefixes{
      "docker", "br-",  "virbr",   "veth", "vnet",   "cni",     "cali", "flannel", "tunl",
      "vxlan",  "kube", "cilium_", "lxc",  "podman", "nerdctl", "ecs",  "vmnet"};
  return std::any_of(kPrefixes.begin(), kPrefixes.end(),
                     [name](auto prefix) { return name.starts_with(prefix); });
}

}  // namespace

bool is_candidate(const NetworkInterface& interface) noexcept {
  return interface.running && has_wire_speed(interface.kind) && !interface.wireless &&
         interface.master.empty() && !has_name_of_a_virtual_network(interface.name);
}

bool is_trap(const NetworkInterface& interface) noexcept {
  return interface.up && interface.kind != InterfaceKind::loopback && !is_candidate(interface);
}

std::string what_is_wrong_with(const Node& node, std::string_view interface) {
  const NetworkInterface* found = node.interface(interface);
  if (found == nullptr) return "this node does not have";
  if (!found->running) return "is not running here";
  return address_of(node.addresses, interface) ? ""
                                               : "has no address here that other nodes can reach";
}

}  // namespace ddp::fabric
