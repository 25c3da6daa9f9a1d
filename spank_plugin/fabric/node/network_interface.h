// SPDX-License-Identifier: Apache-2.0
// The network interfaces of a node in /sys/class/net. Every interface is listed with its kind. The
// caller decides which kinds can carry a job's traffic, because a veth may be the only connection
// of a node in a virtual cluster.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ddp::fabric {

enum class InterfaceKind : std::uint8_t {
  physical,  // a device on a bus, including virtio and SR-IOV functions
  ipoib,     // IP over InfiniBand
  bond,      // bond or team
  vlan,
  bridge,
  veth,
  tun,      // tun or tap
  tunnel,   // ipip, gre, sit, vxlan, wireguard, ..
  macvlan,  // macvlan, macvtap or ipvlan
  loopback,
  other,  // virtual, not one of the above: dummy, ifb, ..
};

std::string_view name_of(InterfaceKind kind) noexcept;

// Returns true if the speed that the kernel reports for this kind of interface is that of a wire. A
// veth always reports 10000, whatever device is below it.
bool has_wire_speed(InterfaceKind kind) noexcept;

struct NetworkInterface {
  std::string name;
  InterfaceKind kind = InterfaceKind::other;
  int index = 0;  // as in if_nametoindex(3); 0 if unknown
  bool wireless = false;
  bool up = false;                  // enabled by the administrator
  bool running = false;             // up, with a link
  std::optional<int> speed_mbps;    // absent if the driver reports none
  std::optional<bool> full_duplex;  // absent if the driver reports none
  std::optional<int> mtu;           // bytes
  std::string master;               // the bond or bridge it is a member of, if any
  std::string lower;                // the interface below a VLAN, if the kernel reports it
  std::string hardware_address;     // MAC or InfiniBand address
  std::string bus_address;          // "0000:17:00.0", if it is on a bus
  std::optional<int> numa_node;     // absent if the platform does not report it
  std::string bond_mode = {};       // of a bond: "active-backup 1", "802.3ad 4"; empty if unknown
};

// Reads at most 4096 interfaces below `sys`, normally "/sys", in the order of their index.
std::vector<NetworkInterface> read_network_interfaces(const std::filesystem::path& sys);

}  // namespace ddp::fabric
