// SPDX-License-Identifier: Apache-2.0
// Numeric IP addresses, and the interfaces that have them. No function here uses a name service.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace ddp::fabric {

struct IpAddress {
  bool is_v6 = false;
  std::array<std::uint8_t, 16> bytes{};  // in network order; IPv4 uses the first four

  bool is_loopback() const noexcept;    // 127.0.0.0/8, ::1
  bool is_link_local() const noexcept;  // 169.254.0.0/16, fe80::/10
  bool is_local() const noexcept { return is_loopback() || is_link_local(); }
  bool operator==(const IpAddress&) const = default;
};

// Parses "10.0.0.1", "fe80::1" and "fe80::1%eth0" (the zone is dropped). IPv4-mapped IPv6 becomes
// IPv4.
std::optional<IpAddress> parse_ip_address(std::string_view text);

std::string to_string(const IpAddress& address);

// Returns true if the first `prefix_bits` bits equal those of `network`; false if the address
// families differ.
bool is_in(const IpAddress& address, const IpAddress& network, int prefix_bits) noexcept;

struct InterfaceAddress {
  std::string interface;
  IpAddress address;
  int prefix_bits = 0;

  // True for an address without a network (/32, /128), which other nodes reach through routers.
  bool is_of_host_only() const noexcept { return prefix_bits == (address.is_v6 ? 128 : 32); }
  bool operator==(const InterfaceAddress&) const = default;
};

// Returns the name of the interface that has the address; empty if there is none.
std::string interface_with(std::span<const InterfaceAddress> addresses, const IpAddress& address);

// Returns an address by which other nodes can reach the interface: IPv4 if there is one, never a
// loopback or link-local address.
std::optional<IpAddress> address_of(std::span<const InterfaceAddress> addresses,
                                    std::string_view interface);

// Returns true if the interface has such an address of this family.
bool has_address(std::span<const InterfaceAddress> addresses, std::string_view interface,
                 bool is_v6);

}  // namespace ddp::fabric
