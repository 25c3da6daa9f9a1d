// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/candidate.h"

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

}  // namespace ddp::fabric
