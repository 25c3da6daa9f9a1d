// SPDX-License-Identifier: Apache-2.0
#include "ddp_runtime/check/net/measure/own_link.h"

#include <ifaddrs.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "ddp_runtime/check/net/measure/way_out.h"
#include "spank_plugin/fabric/node/network_interface.h"

namespace ddp::check {
namespace {

struct OwnAddress {
  std::string interface;
  std::string address;
  bool is_v4 = false;
};

std::vector<OwnAddress> own_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  std::vector<OwnAddress> addresses;
  for (const ifaddrs* i = first; i != nullptr; i = i->ifa_next) {
    std::string address = numeric_address(i->ifa_addr);
    if (address.empty()) continue;
    addresses.push_back({i->ifa_name, std::move(address), i->ifa_addr->sa_family == AF_INET});
  }
  return addresses;
}

// Prefers IPv4 to IPv6. Skips link-local addresses, which need the interface index.
std::string address_on(const std::string& interface, const std::vector<OwnAddress>& addresses) {
  std::string best;
  for (const auto& one : addresses) {
    if (one.interface != interface || one.address.starts_with("fe80")) continue;
    if (best.empty() || one.is_v4) best = one.address;
    if (one.is_v4) return best;
  }
  return best;
}

std::optional<double> wire_rate(const fabric::NetworkInterface& interface) {
  if (!interface.speed_mbps || !fabric::has_wire_speed(interface.kind)) return std::nullopt;
  return *interface.speed_mbps * 1e6 / 8;
}

}  // namespace

std::string interface_with(const std::string& address) {
  for (const auto& one : own_addresses()) {
    if (one.address == address) return one.interface;
  }
  return {};
}

void describe_link(Hello& hello) {
  const auto way = way_out_to(hello.leader_address);
  // The address may be one of `lo`, as on hosts behind routers. The leader's own task reaches the
  // leader without a network.
  hello.interface = way && !way->loopback ? way->interface : interface_with(hello.address);
  const auto addresses = own_addresses();
  for (const auto& interface : fabric::read_network_interfaces("/sys")) {
    const std::string address = address_on(interface.name, addresses);
    if (interface.running && !address.empty()) {
      const bool wire = interface.kind == fabric::InterfaceKind::physical ||
                        interface.kind == fabric::InterfaceKind::ipoib;
      hello.rails[interface.name] = {address, wire_rate(interface), wire};
    }
    if (interface.name != hello.interface) continue;
    if (interface.kind != fabric::InterfaceKind::loopback) hello.mtu = interface.mtu;
    hello.link_bytes_per_second = wire_rate(interface);
  }
}

}  // namespace ddp::check
