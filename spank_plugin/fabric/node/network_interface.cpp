// SPDX-License-Identifier: Apache-2.0
#include "spank_plugin/fabric/node/network_interface.h"

#include <linux/if.h>
#include <linux/if_arp.h>

#include <algorithm>
#include <array>
#include <limits>
#include <tuple>
#include <utility>

#include "spank_plugin/fabric/files/attribute.h"

namespace ddp::fabric {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxInterfaceNames = 4096;

bool is_there(const fs::path& path) {
  std::error_code error;
  return fs::exists(path, error);
}

std::optional<int> read_int(const fs::path& file) {
  const auto value = read_integer(file);
  if (!value || *value < std::numeric_limits<int>::min() ||
      *value > std::numeric_limits<int>::max()) {
    return std::nullopt;
  }
  return static_cast<int>(*value);
}

std::optional<int> read_positive(const fs::path& file) {
  const auto value = read_int(file);
  return value && *value > 0 ? value : std::nullopt;  // drivers report -1 or 0 for "unknown"
}

// Returns DEVTYPE of the interface's uevent file, the type that its driver reports, if any.
std::string device_type(const fs::path& interface) {
  const std::string uevent = read_attribute(interface / "uevent").value_or("");
  constexpr std::string_view kKey = "DEVTYPE=";
  const std::size_t at = uevent.find(kKey);
  if (at == std::string::npos || (at > 0 && uevent[at - 1] != '\n')) return {};
  const std::size_t first = at + kKey.size();
  return uevent.substr(first, uevent.find('\n', first) - first);
}

std::optional<InterfaceKind> kind_from_device_type(std::string_view type) {
  constexpr std::array<std::pair<std::string_view, InterfaceKind>, 13> kKinds{{
      {"vlan", InterfaceKind::vlan},
      {"bridge", InterfaceKind::bridge},
      {"bond", InterfaceKind::bond},
      {"team", InterfaceKind::bond},
      {"macvlan", InterfaceKind::macvlan},
      {"macvtap", InterfaceKind::macvlan},
      {"ipvlan", InterfaceKind::macvlan},
      {"vxlan", InterfaceKind::tunnel},
      {"geneve", InterfaceKind::tunnel},
      {"gre", InterfaceKind::tunnel},
      {"gretap", InterfaceKind::tunnel},
      {"wireguard", InterfaceKind::tunnel},
      {"ip6gre", InterfaceKind::tunnel},
  }};
  for (const auto& [name, kind] : kKinds) {
    if (name == type) return kind;
  }
  return std::nullopt;
}

std::optional<InterfaceKind> kind_from_hardware_type(std::int64_t type) {
  switch (type) {
    case ARPHRD_LOOPBACK:
      return InterfaceKind::loopback;
    case ARPHRD_INFINIBAND:
      return InterfaceKind::ipoib;
    case ARPHRD_TUNNEL:
    case ARPHRD_TUNNEL6:
    case ARPHRD_SIT:
    case ARPHRD_IPGRE:
    case ARPHRD_IP6GRE:
      return InterfaceKind::tunnel;
    default:
      return std::nullopt;
  }
}

// No attribute identifies a veth. Its iflink is the index of its peer, which usually differs from
// its own; a peer in another namespace may have the same index, and then only the usual name
// identifies a veth.
bool looks_like_veth(const fs::path& interface, const std::string& name) {
  const auto index = read_int(interface / "ifindex");
  const auto peer = read_int(interface / "iflink");
  return name.starts_with("veth") || (index && peer && *peer > 0 && *index != *peer);
}

InterfaceKind classify(const fs::path& interface, const std::string& name) {
  const auto hardware = kind_from_hardware_type(read_integer(interface / "type").value_or(-1));
  if (hardware) return *hardware;
  if (is_there(interface / "bridge")) return InterfaceKind::bridge;
  if (is_there(interface / "tun_flags")) return InterfaceKind::tun;
  if (const auto kind = kind_from_device_type(device_type(interface))) return *kind;
  if (is_there(interface / "device")) return InterfaceKind::physical;
  return looks_like_veth(interface, name) ? InterfaceKind::veth : InterfaceKind::other;
}

// A link "lower_eth0" exists for each interface below this one. Only that of a VLAN matters, and a
// VLAN has exactly one.
std::string lower_of(const fs::path& interface) {
  constexpr std::string_view kPrefix = "lower_";
  for (const auto& entry : list_names(interface, 256)) {
    if (entry.starts_with(kPrefix)) return entry.substr(kPrefix.size());
  }
  return {};
}

// Many virtual drivers leave operstate at "unknown". The carrier then decides.
bool link_is_there(const fs::path& interface) {
  const std::string state = read_attribute(interface / "operstate").value_or("unknown");
  if (state != "unknown") return state == "up";
  return read_integer(interface / "carrier") == 1;
}

std::optional<bool> read_duplex(const fs::path& interface) {
  const auto text = read_attribute(interface / "duplex");
  if (text == "full") return true;
  if (text == "half") return false;
  return std::nullopt;
}

NetworkInterface read_interface(const fs::path& interface, const std::string& name) {
  NetworkInterface result;
  result.name = name;
  result.kind = classify(interface, name);
  result.index = read_int(interface / "ifindex").value_or(0);
  result.wireless = is_there(interface / "phy80211") || is_there(interface / "wireless");
  result.up = (read_integer(interface / "flags").value_or(0) & IFF_UP) != 0;
  result.running = result.up && link_is_there(interface);
  result.speed_mbps = read_positive(interface / "speed");
  result.full_duplex = read_duplex(interface);
  result.mtu = read_positive(interface / "mtu");
  result.master = read_link_name(interface / "master").value_or("");
  if (result.kind == InterfaceKind::bond) {
    result.bond_mode = read_attribute(interface / "bonding" / "mode").value_or("");
  }
  if (result.kind == InterfaceKind::vlan) result.lower = lower_of(interface);
  result.hardware_address = read_attribute(interface / "address").value_or("");
  result.bus_address = read_link_name(interface / "device").value_or("");
  const auto node = read_int(interface / "device" / "numa_node");
  if (node && *node >= 0) result.numa_node = node;
  return result;
}

}  // namespace

std::string_view name_of(InterfaceKind kind) noexcept {
  constexpr std::array<std::string_view, 11> kNames{"physical", "ipoib",    "bond", "vlan",
                                                    "bridge",   "veth",     "tun",  "tunnel",
                                                    "macvlan",  "loopback", "other"};
  return kNames[static_cast<std::size_t>(kind)];
}

bool has_wire_speed(InterfaceKind kind) noexcept {
  return kind == InterfaceKind::physical || kind == InterfaceKind::ipoib ||
         kind == InterfaceKind::bond || kind == InterfaceKind::vlan;
}

std::vector<NetworkInterface> read_network_interfaces(const fs::path& sys) {
  const fs::path directory = sys / "class" / "net";
  std::vector<NetworkInterface> interfaces;
  for (const auto& name : list_names(directory, kMaxInterfaceNames)) {
    // "bonding_masters" is a file among the interface directories.
    if (!is_there(directory / name / "type")) continue;
    interfaces.push_back(read_interface(directory / name, name));
  }
  std::sort(interfaces.begin(), interfaces.end(), [](const auto& a, const auto& b) {
    return std::tie(a.index, a.name) < std::tie(b.index, b.name);
  });
  return interfaces;
}

}  // namespace ddp::fabric
